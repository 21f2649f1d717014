import { type Collection, type Document, type Filter, type MongoBulkWriteError, MongoServerError } from 'mongodb'
import { ID_INDEX } from '../terms/terms.js'
import { AS_IT_STANDS } from './read-each.js'
import { exactly, perUpdate, updateNamed } from './update-named.js'
import { isDefiniteRefusal } from './write-error.js'

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
