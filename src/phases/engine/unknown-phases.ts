import type { Collection } from 'mongodb'
import { typeName } from '../../lock/index.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import type { Logger } from '../logger.js'

/**
 * Notices documents in phases that the lifecycle doesn't know (a typo, a newer version): they are never claimed and never
 * changed. One warning for each lifecycle and phase. Phases of other lifecycles in the same collection are known.
 */
export class UnknownPhases {
  private readonly warned = new Set<string>()

  constructor(
    private readonly model: LifecycleModel,
    private readonly collection: Collection,
    private readonly logger: Logger,
    private readonly phasesOfOthers: () => Promise<readonly string[]> = async () => [],
    /** Told of phases that are no text: 'a number'. */
    private readonly onOddPhase: (found: string) => void = () => {},
  ) {}

  /** The unknown phases that documents are in. Reads one key of the claim index for each phase there is. */
  async check(): Promise<string[]> {
    const phases: unknown[] = await this.collection.distinct('phase')
    for (const phase of phases) if (typeof phase !== 'string') this.onOddPhase(typeName(phase))
    const foreign = phases.filter((phase) => typeof phase === 'string' && !this.model.phases.has(phase)) as string[]
    if (foreign.length === 0) return []
    const known = new Set([...(await this.phasesOfOthers()), ...this.model.renames.map((rename) => rename.from)])
    const unknown = foreign.filter((phase) => !known.has(phase))
    for (const phase of unknown) {
      if (this.warned.has(phase)) continue
      this.warned.add(phase)
      const own = [...this.model.phases.keys()].join(', ')
      this.logger.warn(
        `${this.model.name}: documents in the unknown phase '${phase}' are left alone; known phases: ${own}`,
        { lifecycle: this.model.name, phase },
      )
    }
    return unknown
  }
}
