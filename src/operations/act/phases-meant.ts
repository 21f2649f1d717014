import { type LifecycleModel, workingPhases } from '../../phases/index.js'
import { UsageError } from '../system/errors.js'

/** Checks the phase of a redo; undefined: where the document is. @throws UsageError for one without a handler */
export function requireWorkingPhase(model: LifecycleModel, phase: string | undefined): void {
  const working = workingPhases(model)
  if (phase !== undefined && !working.includes(phase))
    throw new UsageError(`expected a phase of ${model.name} with a handler (${working.join(', ')}), got '${phase}'`, {
      reason: 'unknownPhase',
      got: phase,
      known: working,
    })
}

/** Checks the phase of a migration. @throws UsageError for a final one, or none */
export function requireOpenPhase(model: LifecycleModel, phase: unknown): void {
  const known = [...model.phases.values()].filter(({ kind }) => kind !== 'final').map(({ name }) => name)
  if (typeof phase === 'string' && known.includes(phase)) return
  throw new UsageError(
    `phase (--to-phase): expected where to, a phase of ${model.name} that isn't final (${known.join(', ')}), got ${phase === undefined ? 'none' : `'${phase}'`}`,
    { reason: 'unknownPhase', got: phase, known },
  )
}
