import type { Collection } from 'mongodb'
import { type Chore, phasesIn, typeName } from '../../../lock/index.js'
import type { BoundedLog } from '../../bounded-log.js'
import type { LifecycleModel } from '../../definition/lifecycle.js'

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
    private readonly model: LifecycleModel,
    private readonly collection: Collection,
    private readonly lines: BoundedLog,
    private readonly phasesOfOthers: () => Promise<readonly string[]> = async () => [],
    /** Told of phases that are no text: 'a number'. */
    private readonly onOddPhase: (found: string) => void = () => {},
    /** Phases of this replica's other lifecycles in the same collection. */
    private readonly siblings: readonly string[] = [],
  ) {}

  /** A question for a look: whether there is a document in a phase that isn't this lifecycle's. A key for each gap between them. */
  chore(): Chore {
    const known = [...this.model.phases.keys(), ...this.siblings, ...this.model.renames.map((rename) => rename.from)]
    return { name: FOREIGN_PHASES, match: { phase: { $nin: [...known, null] } } }
  }

  /** The unknown phases that documents are in. Reads one key of the claim index for each phase there is. */
  async check(): Promise<string[]> {
    const phases = await phasesIn(this.collection)
    for (const phase of phases) if (typeof phase !== 'string') this.onOddPhase(typeName(phase))
    const foreign = phases.filter((phase) => typeof phase === 'string' && !this.model.phases.has(phase)) as string[]
    if (foreign.length === 0) return []
    const known = new Set([...(await this.phasesOfOthers()), ...this.model.renames.map((rename) => rename.from)])
    const unknown = foreign.filter((phase) => !known.has(phase))
    for (const phase of unknown) {
      if (this.warned.has(phase)) continue
      if (this.warned.size >= MOST_WARNED) this.warned = new Set()
      this.warned.add(phase)
      const own = [...this.model.phases.keys()].join(', ')
      this.lines.warn(
        { kind: 'documents in unknown phases' },
        `${this.model.name}: documents in the unknown phase '${phase}' are left alone; known phases: ${own}`,
        { lifecycle: this.model.name, phase },
      )
    }
    return unknown
  }
}
