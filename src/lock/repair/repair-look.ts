import type { Collection, Document, Filter } from 'mongodb'
import { idKey } from '../documents/id-key.js'
import { readOwnFields } from '../documents/read-each.js'
import { withIds } from '../documents/reordered-ids.js'
import { typeName } from '../documents/type-name.js'
import { type Refused, updateAround } from '../documents/write-around.js'
import { onClaimIndex } from '../indexes/on-index.js'
import { stagesOf } from '../indexes/plan-scans.js'
import { isUnleased, NEVER_DUE } from '../lease/lease-state.js'
import type { RefusingDocuments } from '../select/refusing-documents.js'
import { hasOurShape, PARKED_AT, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

const BATCH = 100
const SCAN_MS = 2_000
/** MaxTimeMSExpired. */
const TIME_IS_UP = 50
const FIRST_ARRAY_PAUSE_MS = 60_000
const LAST_ARRAY_PAUSE_MS = 3_600_000

export interface RepairResult {
  /** `found`: the former value of `lockedAt`: 'a Timestamp', 'a date after 9999-12-31'. */
  readonly repaired: readonly { readonly id: unknown; readonly found: string }[]
  readonly refused: readonly Refused[]
}

/**
 * Finds documents whose `lockedAt` no claim would ever find, and replaces it:
 *
 * - A value that sorts after dates, or an array: free.
 * - A date after 9999-12-31: parked, as 9999-12-31 exactly.
 * - It carries a token, or legacy writers may hold it: a lease from now, which runs out.
 * - `progress` or `phase` of another shape: 9999-12-31, and nothing else changes, as with a claim.
 *
 * It reads two keys per phase when there is nothing to repair. The index can't distinguish arrays, so they cost a walk over the phases, only if
 * one has made the index multikey, and less often the longer none is found. Nor can an index distinguish parked documents with a token from those
 * without: that takes a walk over the parked documents, every ten minutes and for 2 s at most.
 */
export class RepairLook {
  private arraysAtMs = Number.NEGATIVE_INFINITY
  private arrayPauseMs = FIRST_ARRAY_PAUSE_MS

  constructor(
    private readonly collection: Collection,
    private readonly terms: () => Terms,
    private readonly phases: readonly string[],
    private readonly refusing: RefusingDocuments,
    private readonly monotonicMs: () => number,
  ) {}

  /** The documents that it mends, except arrays, as queries for a look. */
  matches(): Document[] {
    const phase = { $in: [...this.phases] }
    return [NEVER_DUE.afterDates, NEVER_DUE.afterParked].map((kind) => ({ phase, ...kind }))
  }

  async repair(): Promise<RepairResult> {
    const results = [
      await this.mend(NEVER_DUE.afterDates, TASK_LOCK_INIT_TIME),
      await this.mend(NEVER_DUE.afterParked, PARKED_AT),
      await this.mendParkedLeases(),
    ]
    if (this.monotonicMs() - this.arraysAtMs >= this.arrayPauseMs && (await this.hasHadArrays())) {
      const arrays = await this.mend(NEVER_DUE.array, TASK_LOCK_INIT_TIME, { maxTimeMS: SCAN_MS })
      this.arraysAtMs = this.monotonicMs()
      const foundNone = arrays.repaired.length + arrays.refused.length === 0
      this.arrayPauseMs = foundNone ? Math.min(this.arrayPauseMs * 2, LAST_ARRAY_PAUSE_MS) : FIRST_ARRAY_PAUSE_MS
      results.push(arrays)
    }
    return {
      repaired: results.flatMap((result) => result.repaired),
      refused: results.flatMap((result) => result.refused),
    }
  }

  private async mendParkedLeases(): Promise<RepairResult> {
    const ours = { ...NEVER_DUE.parkedLease, $expr: hasOurShape(this.terms()) }
    try {
      return await this.mend(ours, PARKED_AT, { maxTimeMS: SCAN_MS })
    } catch (error) {
      if ((error as { code?: unknown }).code !== TIME_IS_UP) throw error
      return { repaired: [], refused: [] }
    }
  }

  private async mend(kind: Filter<Document>, to: Date, limits: { maxTimeMS?: number } = {}): Promise<RepairResult> {
    const skipped = this.refusing.ids()
    const others = skipped.length > 0 ? { _id: { $nin: skipped as never[] } } : {}
    const filter = { phase: { $in: [...this.phases] }, ...kind, ...others }
    const limit = BATCH + this.refusing.unnamed
    const read = await onClaimIndex(this.collection, (hint) =>
      readOwnFields((how) =>
        this.collection.find(filter, { projection: { lockedAt: 1 }, hint, limit, ...limits, ...how }).toArray(),
      ),
    )
    const found = read.filter(({ _id }) => !this.refusing.isPaused(_id)).slice(0, BATCH)
    if (found.length === 0) return { repaired: [], refused: [] }
    const ids = found.map((document) => document['_id'] as unknown)
    const stillSo = (some: readonly unknown[]) => ({ ...withIds(some), $and: [filter] })
    const { refused } = await updateAround(this.collection, ids, stillSo, mended(this.terms(), to))
    for (const { id } of refused) this.refusing.add(id)
    const culprits = new Set(refused.map(({ id }) => idKey(id)))
    const repaired = found.filter((document) => !culprits.has(idKey(document['_id'])))
    return { repaired: repaired.map(({ _id, lockedAt }) => ({ id: _id, found: storedIn(lockedAt) })), refused }
  }

  private async hasHadArrays(): Promise<boolean> {
    const explained = await onClaimIndex(this.collection, (hint) =>
      this.collection.find({ phase: this.phases[0] ?? '' }, { hint, limit: 1 }).explain('queryPlanner'),
    )
    return stagesOf(explained).some(({ multiKeyPaths }) => multiKeyPaths?.lockedAt?.length > 0)
  }
}

function mended(terms: Terms, to: Date): Document[] {
  const lease = '$$NOW'
  const free = terms.legacyWriters && to !== PARKED_AT ? lease : to
  const lockedAt = { $cond: [isUnleased, free, lease] }
  return [{ $set: { lockedAt: { $cond: [hasOurShape(terms), lockedAt, PARKED_AT] } } }]
}

function storedIn(lockedAt: unknown): string {
  if (!(lockedAt instanceof Date)) return typeName(lockedAt)
  return lockedAt.getTime() === PARKED_AT.getTime() ? '9999-12-31 under a lease' : 'a date after 9999-12-31'
}
