import type { Collection, Document, Filter } from 'mongodb'
import { stagesOf } from '../documents/plan-scans.js'
import { onClaimIndex, readOwnFields } from '../documents/read.js'
import { CHECKED_FIELDS, idKey, type OddField, oddFields, typeName, withIds } from '../documents/values.js'
import { type Refused, updateApart, updateAround } from '../documents/write.js'
import { isUnleased, NEVER_DUE } from '../lease/lease-state.js'
import type { RefusingDocuments } from '../select/refusing-documents.js'
import { hasOurShape, ID_INDEX, isValidYet, PARKED_AT, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

/** A document that was quarantined (lockedAt 9999-12-31) because its owner uses one of Phaselock's fields. */
export interface Quarantined {
  readonly id: unknown
  readonly fields: readonly OddField[]
}

/** Finds those of the documents that were quarantined by a write that judges their shape. It goes by that shape, because they carry no token. */
export async function quarantineAmong(
  collection: Collection,
  terms: Terms,
  ids: readonly unknown[],
): Promise<Quarantined[]> {
  const aside = { ...withIds(ids), lockedBy: null, lockedAt: PARKED_AT, $expr: { $not: [hasOurShape(terms)] } }
  const found = await readOwnFields((how) =>
    collection.find(aside, { projection: CHECKED_FIELDS, hint: ID_INDEX, ...how }).toArray(),
  )
  return found.map((document) => ({ id: document['_id'] as unknown, fields: oddFields(document) }))
}

/** The most documents of a phase that are read, and the most of them that are dated. */
const MOST = { read: 10_000, dated: 1_000 }
const PER_COMMAND = 100
/** The time limit of a command: an open transaction blocks a write of its documents, and nothing waits for it longer than this. */
const MOST_MS = 1_000

/** Matches documents that are free, never claimed, and without any date. A `createdAt` of another type is the owner's. */
const isUndated = (phase: string, { progress }: Pick<Terms, 'progress'>): Filter<Document> => ({
  ...{ phase, lockedAt: { $not: { $gt: TASK_LOCK_INIT_TIME } } },
  ...{ updatedAt: null, createdAt: null, [progress]: { $exists: false } },
  _id: { $not: { $type: 'objectId' } } as never,
})

/**
 * Writes the server's time as `createdAt` into undated documents of a phase. It is later than their insert, never earlier; and never by a forward
 * step of its clock that isn't confirmed. Documents that refuse the write stay undated.
 * @returns how many were dated
 */
export async function dateUndated(collection: Collection, terms: Terms, phase: string): Promise<number> {
  if (terms.hold) return 0
  const { _id: isOfAnotherKind, ...undated } = isUndated(phase, terms)
  const pipeline = [
    { $match: { phase, lockedAt: undated['lockedAt'], updatedAt: null } },
    { $limit: MOST.read },
    { $match: { ...undated, _id: isOfAnotherKind } },
    { $limit: MOST.dated },
    { $project: { _id: 1 } },
  ]
  const found = await onClaimIndex(collection, (hint) =>
    readOwnFields((how) => collection.aggregate(pipeline, { hint, maxTimeMS: MOST_MS, ...how }).toArray()),
  )
  if (found.length === 0) return 0
  const update = [{ $set: { createdAt: '$$NOW' } }]
  const isValid = isValidYet(terms)
  const now = isValid ? { $expr: isValid } : {}
  let dated = 0
  for (let from = 0; from < found.length; from += PER_COMMAND) {
    const some = found.slice(from, from + PER_COMMAND).map(({ _id: id }) => ({
      ...{ id: id as unknown, filter: { ...undated, ...now, ...withIds([id]) }, update },
    }))
    dated += (await updateApart(collection, some, { maxTimeMS: MOST_MS })).matched
  }
  return dated
}

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
