import type { Collection, Db } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  KNOWN_FOR_MS,
  LIFECYCLES_COLLECTION,
  type LockTimeoutInForce,
  type LookResult,
  readLockTimeouts,
} from '../../lock/index.js'
import { type Clock, formatMs } from '../../time/index.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import type { Logger } from '../logger.js'
import { requireDisjointFrom, type Territory, territoryOf } from './overlaps.js'

interface Registered {
  _id: string
  collection: string
  lockTimeout: number
  /** Its phases, as the replica that started last has them; absent if an older version wrote this. */
  phases?: string[]
  /** When a replica last said that it looks after this lifecycle; at most a minute before the last look of any. */
  handledAt?: Date
}

/**
 * The lifecycles of a database and the lockTimeout in force for each: it is part of the data (leases and sleeps are encoded
 * with it), so the first replica's setting stands, and others adopt it and say so where theirs differs.
 *
 * Invariant (docs/lock-protocol.md, point 10): a lease is taken or renewed, and a document judged, by what was read at most
 * 5 s before.
 */
export class LifecycleRegistry {
  private readonly collection: Collection<Registered>
  private readonly inForce = new Map<string, LockTimeoutInForce>()
  private readAtMs = Number.NEGATIVE_INFINITY
  private reading: Promise<void> | undefined
  private refreshed = Promise.withResolvers<void>()

  /** @param renewalDb the same database over another connection, so that a full pool keeps nobody from reading it */
  constructor(
    db: Db,
    private readonly renewalDb: Db,
    private readonly models: readonly LifecycleModel[],
    private readonly logger: Logger,
    private readonly clock: Clock,
  ) {
    this.collection = protocolCollection<Registered>(db, LIFECYCLES_COLLECTION)
  }

  /**
   * Refuses to work beside another's lifecycle on the same documents. It is asked before this replica registers its own, so
   * that one which is refused leaves no trace; two that start within the same moment aren't seen.
   * @throws OverlappingLifecycles
   */
  async requireNoOverlap(): Promise<void> {
    requireDisjointFrom(this.models, await this.others(this.models.map((model) => model.collection)))
  }

  /** The phases of all other lifecycles in a lifecycle's collection, this replica's and others'. */
  async phasesBeside({ name, collection }: LifecycleModel): Promise<string[]> {
    return [...this.siblings(name, collection), ...(await this.others([collection]))].flatMap((other) => other.phases)
  }

  /** The phases of this replica's other lifecycles in a lifecycle's collection. */
  siblingPhases({ name, collection }: LifecycleModel): string[] {
    return this.siblings(name, collection).flatMap((other) => other.phases)
  }

  private siblings(name: string, collection: string): Territory[] {
    return this.models.filter((model) => model.name !== name && model.collection === collection).map(territoryOf)
  }

  private async others(collections: readonly string[]): Promise<Territory[]> {
    const own = this.models.map((model) => model.name)
    const found = await this.collection.find({ _id: { $nin: own }, collection: { $in: [...collections] } }).toArray()
    return found.map(({ _id, collection, phases = [] }) => ({ name: _id, collection, phases }))
  }

  /** Registers what isn't there yet. */
  async register(): Promise<void> {
    for (const model of this.models) {
      await this.collection.updateOne(
        { _id: model.name },
        {
          $set: { collection: model.collection, phases: territoryOf(model).phases as string[] },
          $setOnInsert: { lockTimeout: model.settings.lockTimeoutMs },
        },
        { upsert: true },
      )
    }
    await this.read()
  }

  /** Takes over what a look has brought; false when a lifecycle isn't registered any more. */
  adopt({ lockTimeouts, sentAtMs }: Pick<LookResult, 'lockTimeouts' | 'sentAtMs'>): boolean {
    for (const model of this.models) {
      const found = lockTimeouts.get(model.name)
      if (!found || !(found.dueMs >= 1_000) || !(found.leaseMs >= 1_000)) continue
      const before = this.inForce.get(model.name)
      this.inForce.set(model.name, found)
      if (before?.dueMs === found.dueMs && before.leaseMs === found.leaseMs) continue
      this.report(model, found, before !== undefined)
    }
    const complete = this.models.every((model) => lockTimeouts.has(model.name))
    if (complete) {
      this.readAtMs = Math.max(this.readAtMs, sentAtMs)
      this.refreshed.resolve()
      this.refreshed = Promise.withResolvers()
    }
    return complete
  }

  /**
   * Sees to it that what is known may still be gone by: reads it again when it comes of age, over the renewals' connection.
   * @throws what the driver throws: then nothing may be claimed or renewed
   */
  async keepFresh(): Promise<void> {
    if (this.clock.monotonicMs() - this.readAtMs < KNOWN_FOR_MS / 2) return
    this.reading ??= this.read().finally(() => {
      this.reading = undefined
    })
    // A look that comes through frees those who wait on a connection that is dead.
    await Promise.race([this.reading, this.refreshed.promise])
  }

  /** Says in the database that a replica looks after these lifecycles, for `phaselock check`. */
  async stamp(lifecycles: readonly string[]): Promise<void> {
    if (lifecycles.length === 0) return
    await this.collection.updateMany({ _id: { $in: [...lifecycles] } }, { $currentDate: { handledAt: true } })
  }

  /** The lockTimeout in force; a lifecycle's own setting before anything was read. */
  lockTimeout(model: LifecycleModel): { dueMs: number; leaseMs: number; knownUntil?: Date } {
    const { lockTimeoutMs } = model.settings
    return this.inForce.get(model.name) ?? { dueMs: lockTimeoutMs, leaseMs: lockTimeoutMs }
  }

  private async read(): Promise<void> {
    const sentAtMs = this.clock.monotonicMs()
    const names = this.models.map((model) => model.name)
    this.adopt({ lockTimeouts: await readLockTimeouts(this.renewalDb, names, { maxTimeMS: 5_000 }), sentAtMs })
  }

  private report(model: LifecycleModel, { dueMs, leaseMs }: LockTimeoutInForce, isChange: boolean): void {
    const own = model.settings.lockTimeoutMs
    if (dueMs !== leaseMs) {
      const [due, lease] = [formatMs(dueMs), formatMs(leaseMs)]
      this.logger.warn(
        `${model.name}: lockTimeout is being changed (${LIFECYCLES_COLLECTION}): leases last ${lease}, others' are honoured for ${due}`,
      )
    } else if (dueMs !== own || isChange) {
      const unused =
        dueMs === own
          ? ''
          : `; this replica's setting of ${formatMs(own)} is not used (to change it: phaselock set-lock-timeout ${model.name} ${own % 1_000 === 0 ? `${own / 1_000}s` : `${own}ms`})`
      this.logger.warn(`${model.name}: lockTimeout ${formatMs(dueMs)} is in force (${LIFECYCLES_COLLECTION})${unused}`)
    }
  }
}
