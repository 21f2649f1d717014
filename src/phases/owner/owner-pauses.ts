import type { NewPause, PauseTarget } from '../../lock/index.js'
import { checkOptions, InvalidOptions, t } from '../../options/index.js'
import type { LifecycleModel } from '../definition/model.js'

const scopeOf = ({ phases }: LifecycleModel) => ({
  phase: t.optional(t.oneOf([...phases.keys()])),
  id: t.anything<unknown>(),
})

const aReason = t.optional(t.checked(t.text, ({ length }) => length <= 500, 'expected at most 500 characters'))

export const cancelOptions = t.object({ by: t.aName, reason: aReason })

const pauseOf = (model: LifecycleModel) =>
  t.object({
    ...scopeOf(model),
    by: t.aName,
    reason: aReason,
    until: t.optional(t.where<Date>((value) => value instanceof Date && value > new Date(0), t.expecting('a date'))),
    for: t.optional(t.duration('1s', '36500d')),
  })

/** @throws InvalidOptions */
export function newPause(model: LifecycleModel, options: unknown): NewPause {
  const { by, reason = null, until = null, for: afterMs, ...scope } = checkOptions('pause', pauseOf(model), options)
  if (until !== null && afterMs !== undefined) throw new InvalidOptions('pause', ['expected until or for, got both'])
  return { target: targetOf('pause', scope), by, reason, end: afterMs === undefined ? until : { afterMs } }
}

/** @throws InvalidOptions */
export const resumedTarget = (model: LifecycleModel, scope: unknown): PauseTarget =>
  targetOf('resume', checkOptions('resume', t.object(scopeOf(model)), scope))

function targetOf(called: string, { phase, id }: { phase?: string | undefined; id?: unknown }): PauseTarget {
  if (phase !== undefined && id !== undefined) throw new InvalidOptions(called, ['expected phase or id, got both'])
  if (phase !== undefined) return { what: 'phase', phase }
  return id === undefined ? { what: 'lifecycle' } : { what: 'document', _id: id }
}
