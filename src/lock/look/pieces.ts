import type { Collection, Document, Filter } from 'mongodb'
import { stagesOf } from '../documents/plan-scans.js'
import { type ClaimIndex, onClaimIndex, readOwnFields } from '../documents/read.js'
import { outboxIndex } from '../outbox/outbox.js'
import { LOCKED_FOREVER } from '../record/progress.js'
import { CLAIM_INDEX, PARKED_AT, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

/*
 * Counts that the claim index answers alone, without reading a document: of a phase, by pieces of `lockedAt`. 10,000 keys take the server
 * 5 to 10 ms, and 10,000 documents 100 ms (measured).
 */

/** The limit of every count: counting must stay cheap however long a queue is. */
export const COUNT_LIMIT = 10_000

/** A time limit, so that a slow database isn't kept busy by counts. */
const MOST_MS = 5_000

const NOT_ARRAY = { $not: { $type: 'array' } } as const

/**
 * A filter for the documents of a phase. A query for a value also matches arrays that hold it, but such a document is in none of these
 * phases.
 */
export const inPhase = (phase: string): Filter<Document> => ({ phase: { $eq: phase, ...NOT_ARRAY } })

/**
 * All other types, so that the index bounds a filter for them: "not a string" would read each document of a collection that has arrays. The
 * obsolete symbols sort among the strings, and would bring these back.
 */
const NO_STRINGS = [
  ...(['minKey', 'maxKey', 'number', 'object', 'binData', 'objectId', 'bool', 'date', 'regex', 'timestamp'] as const),
  ...(['dbPointer', 'javascript', 'javascriptWithScope'] as const),
]

/** Documents that are in no phase: each counted once. Those with an array can only be counted by reading all of the index, and the documents. */
export const PHASELESS = {
  '(missing)': { phase: { $eq: null, ...NOT_ARRAY } },
  '(not a string)': { phase: { $type: NO_STRINGS, ...NOT_ARRAY } },
  '(an array)': { phase: { $type: 'array' } },
} as const satisfies Record<string, Filter<Document>>

/** The pieces of a phase, by `lockedAt`; together they hold each document once. `bound`: see {@link dueBoundAt}. */
export const piecesOf = (bound: Date) =>
  ({
    /** Due and free, or untouched. */
    free: { lockedAt: { $not: { $gt: TASK_LOCK_INIT_TIME } } },
    /** Due since the end of a sleep or a lease. */
    woken: { lockedAt: { $gt: TASK_LOCK_INIT_TIME, $lt: bound } },
    /** Held or asleep. */
    later: { lockedAt: { $gte: bound, $lt: PARKED_AT } },
    parked: { lockedAt: { $gte: PARKED_AT } },
  }) as const satisfies Record<string, Filter<Document>>

/** Ages of {@link overdueIn} and parts of {@link laterStrata}. */
const [MINUTE_MS, HOUR_MS, DAY_MS] = [60_000, 3_600_000, 86_400_000]
const STRATA_MS = [MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS, 7 * DAY_MS]

/** The documents that are held or asleep, divided by how long: a sample of each part shows short sleeps and long ones. */
export function laterStrata(bound: Date): Filter<Document>[] {
  const ends = STRATA_MS.map((ms) => new Date(bound.getTime() + ms)).filter((end) => end < LOCKED_FOREVER.$gte)
  const bounds = [bound, ...ends, LOCKED_FOREVER.$gte, PARKED_AT]
  return bounds.slice(1).map((end, i) => ({ lockedAt: { $gte: bounds[i]!, $lt: end } }))
}

/** The age at which a due document counts as overdue: no replica is about to take it. */
export const OVERDUE_MS = 60_000

/** The documents that say in the index that they have been due for over a minute; `now`: the server's time. */
export const overdueIn = (bound: Date, now: Date): Filter<Document>[] => [
  { ...piecesOf(bound).free, updatedAt: { $lt: new Date(now.getTime() - OVERDUE_MS) } },
  { lockedAt: { $gt: TASK_LOCK_INIT_TIME, $lt: new Date(bound.getTime() - OVERDUE_MS) } },
]

/** Counts the documents that match, one more than the limit at most. It reads no document if the index has all fields of the filter. */
export const countUpTo = (collection: Collection, filter: Filter<Document>, limit = COUNT_LIMIT): Promise<number> =>
  onClaimIndex(collection, (hint) => collection.countDocuments(filter, { hint, limit: limit + 1, maxTimeMS: MOST_MS }))

export interface PieceReading {
  readonly limit: number
  readonly projection: Document
  /** True to begin at its end. */
  readonly backwards?: boolean
}

/** Reads documents of a piece in the order of the claim index. */
export const readPiece = (
  collection: Collection,
  filter: Filter<Document>,
  { limit, projection, backwards = false }: PieceReading,
): Promise<Document[]> =>
  onClaimIndex(collection, (hint) => {
    const sort = backwards && { sort: backwardsOn(hint) }
    const options = { hint, limit, projection, batchSize: limit, maxTimeMS: MOST_MS, ...sort }
    return readOwnFields((how) => collection.find(filter, { ...options, ...how }).toArray())
  })

const backwardsOn = (index: ClaimIndex) => Object.fromEntries(Object.keys(index).map((field) => [field, -1 as const]))

/**
 * The fields that make the claim index multikey: an array was once stored there, and the index stays multikey after it is gone. Then it can't
 * tell a value from an array with it. Only `lockedAt` is costly otherwise: without bounds of their own, queries would read every document of a
 * phase.
 */
export async function multikeyFields(collection: Collection): Promise<string[]> {
  const explained = await collection.find({ phase: '' }).hint(CLAIM_INDEX).explain('queryPlanner')
  return stagesOf(explained).flatMap((stage) => {
    if (stage['isMultiKey'] !== true) return []
    const paths: Document = stage['multiKeyPaths'] ?? {}
    const named = Object.keys(paths).filter((field) => paths[field]?.length > 0)
    return named.length > 0 ? named : ['lockedAt']
  })
}

/** Counts the documents with a callback that was given up, and reads the `_id`s of some, on the index of callbacks. */
export async function givenUpOutboxes(
  collection: Collection,
  { progress, callbacks = [] }: Pick<Terms, 'progress' | 'callbacks'>,
  phases: readonly string[],
  ids: number,
): Promise<{ readonly n: number; readonly ids: readonly unknown[] }> {
  if (callbacks.length === 0) return { n: 0, ids: [] }
  const filter: Filter<Document> = {
    [`${progress}.outbox.next`]: { $in: [...callbacks, 'delete'] },
    phase: { $in: [...phases] },
    [`${progress}.outbox.dueAt`]: { $gte: PARKED_AT },
  }
  const options = { hint: outboxIndex(progress), maxTimeMS: MOST_MS }
  const n = await collection.countDocuments(filter, { ...options, limit: COUNT_LIMIT + 1 })
  if (n === 0) return { n, ids: [] }
  const found = await readOwnFields((how) =>
    collection.find(filter, { ...options, ...how, limit: ids, projection: { _id: 1 } }).toArray(),
  )
  return { n, ids: found.map(({ _id }) => _id) }
}
