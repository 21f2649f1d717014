import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../../database/index.js'
import {
  LIFECYCLES_COLLECTION,
  type LookResult,
  PRESENT_EVERY_MS,
  type Standing,
  sayGone,
  sayPresent,
} from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'

export interface LiveReplicasOptions {
  readonly db: Db
  readonly identity: string
  readonly lifecycles: readonly string[]
  readonly clock: Clock
  /** Whether this replica ticks by itself: one whose caller ticks it shares with nobody, and takes all that is due. */
  readonly ticks: () => boolean
}

/**
 * The replicas to share the work with: each one that ticks by itself announces itself in `phaselock.lifecycles` every 50 s, and reads with
 * its look who else does. A hint only: it decides which documents a replica tries for first, never who holds one.
 */
export class LiveReplicas {
  private readonly lifecycles: Collection<Document & { _id: string }>
  private readonly alone: Standing
  private readonly standings = new Map<string, Standing>()
  private saidAtMs = Number.NEGATIVE_INFINITY

  constructor(private readonly options: LiveReplicasOptions) {
    this.lifecycles = protocolCollection(options.db, LIFECYCLES_COLLECTION)
    this.alone = { self: options.identity, replicas: [options.identity] }
  }

  /** The live replicas of a lifecycle, as of the last look. */
  standing(lifecycle: string): Standing {
    return (this.options.ticks() && this.standings.get(lifecycle)) || this.alone
  }

  /** Announces this replica when that is due, or with `anew` at once. One command for all lifecycles. */
  async say({ anew = false } = {}): Promise<void> {
    const { clock, ticks, lifecycles, identity } = this.options
    if (!ticks() || (!anew && clock.monotonicMs() - this.saidAtMs < PRESENT_EVERY_MS)) return
    this.saidAtMs = clock.monotonicMs()
    await sayPresent(this.lifecycles, lifecycles, identity)
  }

  /** Adopts what a look has brought. */
  adopt({ replicas }: Pick<LookResult, 'replicas'>): void {
    const { lifecycles, identity } = this.options
    for (const lifecycle of lifecycles) {
      const names = new Set([...(replicas.get(lifecycle) ?? []), identity])
      this.standings.set(lifecycle, { self: identity, replicas: [...names] })
    }
  }

  /** To be called once, when no more is to be claimed. */
  async leave(): Promise<void> {
    const { lifecycles, identity } = this.options
    if (this.saidAtMs !== Number.NEGATIVE_INFINITY) await sayGone(this.lifecycles, lifecycles, identity)
  }
}
