import type { Collection, Document, Filter, UpdateOptions } from 'mongodb'
import { isSharded } from '../../database/index.js'
import { DUTIES_COLLECTION, ID_INDEX, LIFECYCLES_COLLECTION, LIMITS_COLLECTION } from '../terms/terms.js'
import { AS_IT_STANDS } from './read-each.js'

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
