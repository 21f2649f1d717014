import type { Collection, Db, Document } from 'mongodb'
import { isBulkWriteError, isDuplicateKey, protocolCollection } from '../../database/index.js'
import {
  type Before,
  beforeOf,
  beforeProjection,
  COMMITTED,
  idKey,
  readOwnFields,
  type Terms,
  wasActedOn,
} from '../../lock/index.js'
import { systemClock } from '../../time/index.js'
import { EXACT } from './selection.js'

/** What documents were before an operation acted on them. */
export const CHANGES_COLLECTION = 'phaselock.operations.changes'

const KEPT_MS = 30 * 24 * 3_600_000

/** `_id`: the operation's, and the document's number in it. */
export interface Change {
  readonly _id: string
  readonly document: unknown
  readonly before: Before
  /** What its owner wanted. */
  readonly state?: unknown
}

const changesIn = (db: Db): Collection<Change & { expiresAt: Date }> => protocolCollection(db, CHANGES_COLLECTION)

/** Of the n-th document of an operation. */
export const changeId = (operation: string, n: number): string => `${operation}#${String(n).padStart(9, '0')}`
/** The character after #. */
const rangeOf = (operation: string) => ({ $gt: `${operation}#`, $lt: `${operation}$` })

/** They expire with their operation. */
export const prepareChanges = async (db: Db): Promise<void> => {
  await changesIn(db).createIndex({ expiresAt: 1 }, { expireAfterSeconds: 0 })
}

/**
 * Keeps what the documents of a page are before they are acted on. Those that are kept already, from before a crash, stay as they are if they
 * may have been acted on.
 */
export async function keepBefore(
  db: Db,
  documents: Collection,
  terms: Terms,
  page: {
    readonly operation: string
    /** The number of the first of them in the operation. */
    readonly first: number
    /** The page was turned by an earlier try of this step. */
    readonly isRepeated: boolean
    readonly ids: readonly unknown[]
    readonly fields: readonly string[]
  },
): Promise<void> {
  const { operation, first, isRepeated, ids, fields } = page
  const projection = beforeProjection(terms, fields)
  const filter = { _id: { $in: ids as never[] } }
  const found = await readOwnFields((how) =>
    documents.find(filter, { projection, ...COMMITTED, ...EXACT, ...how }).toArray(),
  )
  const numbers = new Map(ids.map((id, i) => [idKey(id), first + i]))
  const expiresAt = new Date(systemClock.now().getTime() + KEPT_MS)
  const changes = found.map((one) => ({
    ...{ _id: changeId(operation, numbers.get(idKey(one['_id'])) ?? first), document: one['_id'] as unknown },
    ...{ before: beforeOf(one, terms, fields), ...('state' in one && { state: one['state'] as unknown }), expiresAt },
  }))
  if (changes.length === 0) return
  try {
    await changesIn(db).insertMany(changes, { ordered: false })
  } catch (error) {
    if (!isBulkWriteError(error) || ![error.writeErrors].flat().every(isDuplicateKey)) throw error
    if (!isRepeated) return
    const unmarked = new Set(found.filter((one) => isUnmarked(one, terms, operation)).map(({ _id }) => idKey(_id)))
    const renewed = changes.filter((one) => unmarked.has(idKey(one.document)))
    const writes = renewed.map((one) => ({ replaceOne: { filter: { _id: one._id }, replacement: one } }))
    if (writes.length > 0) await changesIn(db).bulkWrite(writes, { ordered: false })
  }
}

/** Whether the operation surely hasn't acted on it: one whose `progress` isn't ours takes no mark. */
const isUnmarked = (document: Document, terms: Terms, operation: string): boolean => {
  const progress: unknown = document[terms.progress] ?? {}
  const isOurs = typeof progress === 'object' && !Array.isArray(progress) && typeof document['phase'] === 'string'
  return isOurs && !wasActedOn(document, terms, operation)
}

/** How many documents an operation may have changed. */
export const countChanges = (db: Db, operation: string): Promise<number> =>
  changesIn(db).countDocuments({ _id: rangeOf(operation) })

/** Those after one of them, in order. */
export async function nextChanges(db: Db, operation: string, after: unknown, limit: number): Promise<string[]> {
  const range = { ...rangeOf(operation), ...(typeof after === 'string' && { $gt: after }) }
  const options = { projection: { _id: 1 }, sort: { _id: 1 }, limit } as const
  return (await changesIn(db).find({ _id: range }, options).toArray()).map(({ _id }) => _id)
}

export const changeNamed = (db: Db, id: string): Promise<Change | null> => changesIn(db).findOne({ _id: id }, EXACT)
