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

/**
 * The replicas to share the work with: each one that ticks by itself announces itself in `phaselock.lifecycles` every 50 s, and reads with
 * its look who else does. A hint only: it decides which documents a replica tries for first, never who holds one.
 */
export class LiveReplicas {
  private readonly collection: Collection<Document & { _id: string }>
  private readonly alone: Standing
  private readonly standings = new Map<string, Standing>()
  private saidAtMs = Number.NEGATIVE_INFINITY

  /** @param ticks whether this replica ticks by itself: one whose caller ticks it shares with nobody, and takes all that is due */
  constructor(
    db: Db,
    private readonly identity: string,
    private readonly lifecycles: readonly string[],
    private readonly clock: Clock,
    private readonly ticks: () => boolean,
  ) {
    this.collection = protocolCollection(db, LIFECYCLES_COLLECTION)
    this.alone = { self: identity, replicas: [identity] }
  }

  /** The live replicas of a lifecycle, as of the last look. */
  standing(lifecycle: string): Standing {
    return (this.ticks() && this.standings.get(lifecycle)) || this.alone
  }

  /** Announces this replica when that is due, or at once. One command for all lifecycles. */
  async say(when: 'ifDue' | 'atOnce' = 'ifDue'): Promise<void> {
    const now = this.clock.monotonicMs()
    if (!this.ticks() || (when === 'ifDue' && now - this.saidAtMs < PRESENT_EVERY_MS)) return
    this.saidAtMs = now
    await sayPresent(this.collection, this.lifecycles, this.identity)
  }

  /** Adopts what a look has brought. */
  adopt({ replicas }: Pick<LookResult, 'replicas'>): void {
    for (const lifecycle of this.lifecycles) {
      const names = new Set([...(replicas.get(lifecycle) ?? []), this.identity])
      this.standings.set(lifecycle, { self: this.identity, replicas: [...names] })
    }
  }

  /** To be called once, when no more is to be claimed. */
  async leave(): Promise<void> {
    if (this.saidAtMs === Number.NEGATIVE_INFINITY) return
    await sayGone(this.collection, this.lifecycles, this.identity)
  }
}
