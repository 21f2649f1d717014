import { type Chore, phasesIn, typeName } from '../../../lock/index.js'
import type { LifecycleEnvironment } from '../environment.js'
import type { LifecycleRegistry } from '../registry/lifecycle-registry.js'

/** The chore of phases that aren't a lifecycle's. */
export const FOREIGN_PHASES = 'foreign phases'

const MOST_WARNED = 10_000

/**
 * Notices documents in phases that the lifecycle doesn't know (a typo, a newer version): they are never claimed and never
 * changed. One warning for each lifecycle and phase. Phases of other lifecycles in the same collection are known.
 */
export class UnknownPhases {
  private warned = new Set<string>()

  constructor(
    private readonly env: LifecycleEnvironment,
    private readonly registry: LifecycleRegistry,
  ) {}

  /** A question for a look: whether there is a document in a phase that isn't this lifecycle's. A key for each gap between them. */
  chore(): Chore {
    const { model } = this.env
    const siblings = this.registry.siblingPhases(model)
    const known = [...model.phases.keys(), ...siblings, ...model.renames.map((rename) => rename.from)]
    return { name: FOREIGN_PHASES, match: { phase: { $nin: [...known, null] } } }
  }

  /** Warns of the unknown phases that documents are in. Reads one key of the claim index for each phase there is. */
  async check(): Promise<void> {
    const { model, collection, broken, lines } = this.env
    const phases = await phasesIn(collection)
    for (const phase of phases) if (typeof phase !== 'string') broken.phase(typeName(phase))
    const foreign = phases.filter((phase) => typeof phase === 'string' && !model.phases.has(phase)) as string[]
    if (foreign.length === 0) return
    const known = new Set([...(await this.registry.phasesBeside(model)), ...model.renames.map((rename) => rename.from)])
    for (const phase of foreign) {
      if (known.has(phase) || this.warned.has(phase)) continue
      if (this.warned.size >= MOST_WARNED) this.warned = new Set()
      this.warned.add(phase)
      const own = [...model.phases.keys()].join(', ')
      lines.warn(
        { kind: 'documents in unknown phases' },
        `${model.name}: documents in the unknown phase '${phase}' are left alone; known phases: ${own}`,
        { lifecycle: model.name, phase },
      )
    }
  }
}
