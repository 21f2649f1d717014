import type { Collection, Db } from 'mongodb'
import { isBulkWriteError, isDuplicateKey, protocolCollection } from '../../database/index.js'
import { type Before, beforeOf, beforeProjection, idKey, readOwnFields, type Terms } from '../../lock/index.js'
import { systemClock } from '../../time/index.js'

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

const changeId = (operation: string, n: number): string => `${operation}#${String(n).padStart(9, '0')}`
/** The character after #. */
const rangeOf = (operation: string) => ({ $gt: `${operation}#`, $lt: `${operation}$` })

/** They expire with their operation. */
export const prepareChanges = async (db: Db): Promise<void> => {
  await changesIn(db).createIndex({ expiresAt: 1 }, { expireAfterSeconds: 0 })
}

/**
 * Keeps what the documents of a page are before they are acted on. Those that are kept already, from before a crash, stay as they are.
 * @param first the number of the first of them in the operation
 */
export async function keepBefore(
  db: Db,
  documents: Collection,
  terms: Terms,
  page: {
    readonly operation: string
    readonly first: number
    readonly ids: readonly unknown[]
    readonly fields: readonly string[]
  },
): Promise<void> {
  const { operation, first, ids, fields } = page
  const projection = beforeProjection(terms, fields)
  const filter = { _id: { $in: ids as never[] } }
  const found = await readOwnFields((how) => documents.find(filter, { projection, ...how }).toArray())
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
  }
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

export const changeNamed = (db: Db, id: string): Promise<Change | null> => changesIn(db).findOne({ _id: id })
