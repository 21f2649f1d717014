import {
  type Collection,
  type Document,
  type Filter,
  type MongoBulkWriteError,
  type MongoError,
  MongoServerError,
  type UpdateOptions,
} from 'mongodb'
import { isA, isSharded } from '../../database/index.js'
import { DUTIES_COLLECTION, ID_INDEX, LIFECYCLES_COLLECTION, LIMITS_COLLECTION } from '../terms/terms.js'
import { AS_IT_STANDS } from './read.js'

/**
 * The server's errors that come from the document itself: sent again, the same write fails the same way. Only known ones are listed
 * (measured, `test/lock/write-error.test.ts`). Missing on purpose: 2 BadValue and 9 FailedToParse, which a missing index and a command
 * of another version also cause.
 */
const OWN_SAKE_CODES = new Set([
  ...[14, 15, 22, 241, 28651, 28664, 28724, 28729, 40390, 40400], // a type, a number or nesting that our expressions can't handle
  ...[10003, 10334, 17419, 17420], // larger than a document may be
  ...[52, 56, 57, 66, 121], // the owner's validator; names and fields that can't be written
  ...[11000, 11001], // a unique index
  ...[171, 510, 13026, 13027, 13067, 13068, 16755, 16766, 16804, 17261, 17262, 17280], // a value that an index of the owner's can't hold
])

/**
 * True if a write was refused because of the document itself, so that sending it again would fail the same way: by the server, or
 * by the driver, which can't put it into a command (a set of 20 MB). Everything else (network, timeout, failover, write concern,
 * any unknown error) has an unknown outcome: it is read back before anything is sent again, and no document is blamed for it.
 */
export function isDefiniteRefusal(error: unknown): error is Error {
  if (isA(error, 'MongoInvalidArgumentError') || isA(error, 'BSONError') || isA(error, 'RangeError')) return true
  if (!isA(error, 'MongoServerError') || isA(error, 'MongoWriteConcernError')) return false
  const refusal = error as MongoError
  if (refusal.hasErrorLabel('RetryableWriteError') || refusal.hasErrorLabel('PoolRequestedRetry')) return false
  const result = isA(error, 'MongoBulkWriteError') ? (error as MongoBulkWriteError).result : undefined
  if (result?.getWriteConcernError()) return false
  // Of a bulk that goes on after an error, the first may be a document's and another one not.
  const errors = result?.hasWriteErrors() ? result.getWriteErrors() : [refusal]
  return errors.every(({ code }) => OWN_SAKE_CODES.has(code as number))
}

const TOO_LARGE: ReadonlySet<unknown> = new Set([10003, 10334, 17419, 17420])

/** True if a write was refused because it makes a document larger than one may be, or a command larger than the driver can send. */
export function isTooLarge(error: unknown): boolean {
  if (isA(error, 'RangeError')) return true
  const { message, code } = error as MongoError
  return isA(error, 'MongoInvalidArgumentError')
    ? /larger than/.test(message)
    : isA(error, 'MongoServerError') && TOO_LARGE.has(code)
}

/** The pause before a failed command is sent again, 50 ms to half a second: work has to go on soon after a database has come back. */
export const retryPauseMs = (before: number): number => Math.min(50 * 2 ** before, 500)

const OVER_TIME = 50

/** True if the server ended a command for its `maxTimeMS` while it wrote, not while it waited for the other members. */
export const isOverTime = (error: unknown): boolean =>
  isA(error, 'MongoServerError') && !isA(error, 'MongoWriteConcernError') && (error as MongoError).code === OVER_TIME

/*
 * Writes to several documents. In a sharded collection each of them is written separately, named by its `_id`: a router sends such a write
 * to one shard, which executes it once, and not before it knows that the document is its own. A write of several documents goes to all
 * shards, whatever they own: while a chunk migrates it may change the copy that is left behind instead of the document, or count both.
 */

/** Phaselock's own collections in which several documents are written by one update: they must not be sharded. */
export const NEVER_SHARDED: readonly string[] = [LIFECYCLES_COLLECTION, LIMITS_COLLECTION, DUTIES_COLLECTION]

/** An update of the documents with these `_id`s that match. */
export interface NamedUpdate {
  readonly ids: readonly unknown[]
  /** Names them at its top, because it may be replaced there ({@link exactly}). */
  readonly filter: Filter<Document>
  readonly update: Document[]
}

const MOST_PER_BULK = 1_000

/** The most documents that one update may cover. */
export const mostPerUpdate = (collection: Collection): number => (isSharded(collection) ? 1 : Number.POSITIVE_INFINITY)

/** Divides documents into those of one update each: all of these, or in a sharded collection each separately. */
export const perUpdate = <T>(collection: Collection, all: readonly T[]): (readonly T[])[] =>
  isSharded(collection) ? all.map((one) => [one]) : [all]

/**
 * A filter that a router sends to the one shard that owns the document: it has this one condition on the `_id`. So a document whose
 * `_id` the driver can't name isn't matched.
 * @param filter with its conditions on the `_id` at its top
 */
export const exactly = (collection: Collection, id: unknown, filter: Filter<Document>): Filter<Document> =>
  isSharded(collection) ? { ...filter, _id: id as never } : filter

/** Updates all in one command; an update that is refused doesn't stop the others of several. */
export async function updateNamed(
  collection: Collection,
  updates: readonly NamedUpdate[],
  limits: Pick<UpdateOptions, 'maxTimeMS'> = {},
): Promise<{ readonly matchedCount: number; readonly modifiedCount: number }> {
  const isEachAlone = isSharded(collection)
  const [first, ...more] = updates
  if (first && more.length === 0 && !isEachAlone) {
    return collection.updateMany(first.filter, first.update, { hint: ID_INDEX, ...limits })
  }
  const operations = updates.map(({ ids, filter, update }) =>
    isEachAlone
      ? { updateOne: { filter: exactly(collection, ids[0], filter), update, hint: ID_INDEX } }
      : { updateMany: { filter, update, hint: ID_INDEX } },
  )
  return collection.bulkWrite(operations, { ordered: false, ...limits })
}

/** Updates everything that matches, many documents perhaps, for rare cases; each is judged again by the update itself. */
export async function updateMatching(
  collection: Collection,
  filter: Filter<Document>,
  update: Document[],
  options: Pick<UpdateOptions, 'hint'> = {},
): Promise<number> {
  if (!isSharded(collection)) return (await collection.updateMany(filter, update, options)).modifiedCount
  let modified = 0
  for (const ids of await matchingIds(collection, filter, options)) {
    const updates = ids.map((id) => ({ ids: [id], filter, update }))
    modified += (await updateNamed(collection, updates)).modifiedCount
  }
  return modified
}

/** Deletes everything that matches, many documents perhaps; each is judged again by the delete itself. */
export async function deleteMatching(
  collection: Collection,
  filter: Filter<Document>,
  options: Pick<UpdateOptions, 'hint'> = {},
): Promise<void> {
  if (!isSharded(collection)) await collection.deleteMany(filter, options)
  else
    for (const ids of await matchingIds(collection, filter, options)) await deleteNamed(collection, ids, () => filter)
}

/** The `_id`s of what matches, in parts that one bulk of writes may name. */
async function matchingIds(
  collection: Collection,
  filter: Filter<Document>,
  options: Pick<UpdateOptions, 'hint'>,
): Promise<unknown[][]> {
  const found = await collection.find(filter, { projection: { _id: 1 }, ...options, ...AS_IT_STANDS }).toArray()
  const ids = found.map(({ _id }): unknown => _id)
  return Array.from({ length: Math.ceil(ids.length / MOST_PER_BULK) }, (_, i) =>
    ids.slice(i * MOST_PER_BULK, (i + 1) * MOST_PER_BULK),
  )
}

/** Deletes the documents with these `_id`s that match. */
export async function deleteNamed(
  collection: Collection,
  ids: readonly unknown[],
  matching: (ids: readonly unknown[]) => Filter<Document>,
): Promise<number> {
  const hint = { hint: ID_INDEX }
  if (!isSharded(collection)) return (await collection.deleteMany(matching(ids), hint)).deletedCount
  const operations = ids.map((id) => ({ deleteOne: { filter: exactly(collection, id, matching([id])), ...hint } }))
  return (await collection.bulkWrite(operations, { ordered: false })).deletedCount
}

/** A document that the server refuses to write because of its own content: its size, the owner's validator, a unique index, a type. */
export interface Refused {
  readonly id: unknown
  readonly error: Error
}

export interface WrittenAround {
  readonly refused: Refused[]
  /** Left for the next time, because too many refused. */
  readonly untried: unknown[]
}

/** The writes of some documents. Each write is conditional, so that a document that a refused command has written isn't written again. */
export interface WritesOf {
  /** In one command, which ends at the first document that refuses. */
  together(ids: readonly unknown[]): Promise<void>
  /** Each separately, in the fewest possible commands. */
  apart(ids: readonly unknown[]): Promise<readonly Refused[]>
  /** Those of the documents that are still to be written, in the order in which the server writes. */
  leftOf(ids: readonly unknown[]): Promise<readonly unknown[]>
}

/** A document written separately costs six times the time of one among others: worth it if more than this many refuse. */
const MOST_LONE_CULPRITS = 2
/** The number of documents that one command writes separately. */
const MOST_APART = 100
/** Documents that were written must wait for those that refuse: 500 take the server a quarter of a second. */
const MOST_REFUSED = 500

/**
 * Writes documents in one command; if a document's own content makes the server refuse it, all but the culprits are written.
 *
 * A refused command has written those before the culprit. So the rest is read back, and the first of it tried alone; if more than two refuse,
 * each of the remaining ones is written separately, however many refuse.
 * @param mostRefused after this many the rest is left untried
 * @throws what the writes throw for any other reason
 */
export async function writeAround(
  ids: readonly unknown[],
  writes: WritesOf,
  mostRefused = MOST_REFUSED,
): Promise<WrittenAround> {
  const refused: Refused[] = []
  let left = ids
  for (let culprits = 0; left.length > 0; culprits += 1) {
    try {
      await writes.together(left)
      return { refused, untried: [] }
    } catch (error) {
      if (!isDefiniteRefusal(error)) throw error
      if (left.length === 1) return { refused: [...refused, { id: left[0], error }], untried: [] }
    }
    left = await writes.leftOf(left)
    if (culprits === MOST_LONE_CULPRITS) break
    refused.push(...(await writes.apart(left.slice(0, 1))))
    left = left.slice(1)
  }
  while (left.length > 0 && refused.length < mostRefused) {
    refused.push(...(await writes.apart(left.slice(0, MOST_APART))))
    left = left.slice(MOST_APART)
  }
  return { refused, untried: [...left] }
}

/** Makes the same update to the documents that match, around those that refuse it. `matched`: the number of the others that matched. */
export async function updateAround(
  collection: Collection,
  ids: readonly unknown[],
  matching: (ids: readonly unknown[]) => Filter<Document>,
  update: Document[],
): Promise<WrittenAround & { readonly matched: number }> {
  let matched = 0
  const written = await writeAround(ids, {
    together: async (some) => {
      const updates = perUpdate(collection, some).map((ids) => ({ ids, filter: matching(ids), update }))
      matched += (await updateNamed(collection, updates)).matchedCount
    },
    apart: async (some) => {
      const each = some.map((id) => ({ id, filter: matching([id]), update }))
      const result = await updateApart(collection, each)
      matched += result.matched
      return result.refused
    },
    leftOf: (some) => idsOf(collection, matching(some)),
  })
  return { ...written, matched }
}

/**
 * Updates each document separately, all in one command; a document that refuses doesn't stop the others.
 * @returns those that refused because of their own content
 * @throws the first error that isn't a document's fault
 */
export async function updateApart(
  collection: Collection,
  updates: readonly { readonly id: unknown; readonly filter: Filter<Document>; readonly update: Document[] }[],
  limits: { maxTimeMS?: number } = {},
): Promise<{ refused: Refused[]; matched: number }> {
  const operations = updates.map(({ id, filter, update }) => ({
    updateOne: { filter: exactly(collection, id, filter), update, hint: ID_INDEX },
  }))
  if (operations.length === 0) return { refused: [], matched: 0 }
  try {
    const { matchedCount } = await collection.bulkWrite(operations, { ordered: false, ...limits })
    return { refused: [], matched: matchedCount }
  } catch (error) {
    const failure = error as Partial<MongoBulkWriteError>
    const refused = [failure.writeErrors ?? []].flat().map(({ index, code, errmsg }) => {
      return { id: updates[index]!.id, error: new MongoServerError({ message: errmsg ?? '', code }) }
    })
    const foreign = refused.find((one) => !isDefiniteRefusal(one.error))
    if (foreign) throw foreign.error
    if (refused.length === 0 || failure.hasErrorLabel?.('RetryableWriteError')) throw error
    return { refused, matched: failure.result?.matchedCount ?? 0 }
  }
}

/** Reads the `_id`s of documents that match, in the order of `_id`, as a write with a hint on `_id` takes them. */
export async function idsOf(
  collection: Collection,
  filter: Filter<Document>,
  limits: { maxTimeMS?: number } = {},
): Promise<unknown[]> {
  const reading = { projection: { _id: 1 }, hint: ID_INDEX, ...limits, ...AS_IT_STANDS }
  const found = await collection.find(filter, reading).toArray()
  return found.map((document) => document['_id'] as unknown)
}
