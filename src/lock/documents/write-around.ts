import { type Collection, type Document, type Filter, MongoServerError, type WriteError } from 'mongodb'
import { ID_INDEX } from '../terms/constants.js'
import { AS_IT_STANDS } from './read-each.js'
import { isDefiniteRefusal } from './write-error.js'

/** A document that the server refuses to write for its own sake: its size, the owner's validator, a unique index, a type. */
export interface Refused {
  readonly id: unknown
  readonly error: Error
}

export interface WrittenAround {
  readonly refused: Refused[]
  /** Left for the next time, as too many refused. */
  readonly untried: unknown[]
}

/** How some documents are written. Each is conditional, so that what a refused command has already written is not written again. */
export interface WritesOf {
  /** In one command, which ends at the first document that refuses. */
  together(ids: readonly unknown[]): Promise<void>
  /** Each for itself, in as few commands as there may be. */
  apart(ids: readonly unknown[]): Promise<readonly Refused[]>
  /** Those of the given documents that are still to be written, in the order in which the server writes. */
  leftOf(ids: readonly unknown[]): Promise<readonly unknown[]>
}

/** A document that is written for itself costs six times as much as one among others: worth it where more than these refuse. */
const MOST_LONE_CULPRITS = 2
/** Documents that are written for themselves in one command. */
const MOST_APART = 100
/** What was written meanwhile waits for those that refuse: 500 take the server a quarter of a second. */
const MOST_REFUSED = 500

/**
 * Writes documents in one command; when it is refused for a document's own sake, all but the culprits are written.
 *
 * A command that is refused has written those before the culprit. So what is left to write is read back, and the first of it
 * tried alone; where more than two refuse, each of the rest is written for itself, however many refuse.
 * @param mostRefused after so many the rest is left untried
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

/** Makes the same update of some documents, as far as they match, around those that refuse it. `matched`: how many others did. */
export async function updateAround(
  collection: Collection,
  ids: readonly unknown[],
  matching: (ids: readonly unknown[]) => Filter<Document>,
  update: Document[],
): Promise<WrittenAround & { readonly matched: number }> {
  let matched = 0
  const written = await writeAround(ids, {
    together: async (some) => {
      matched += (await collection.updateMany(matching(some), update, { hint: ID_INDEX })).matchedCount
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

/** An update of one document. */
export interface UpdateOfOne {
  readonly id: unknown
  readonly filter: Filter<Document>
  readonly update: Document[]
}

/**
 * Updates each document for itself, all in one command; a document that refuses stops none of the others.
 * @returns those that refused for their own sake
 * @throws the first error that is none of the documents' fault
 */
export async function updateApart(
  collection: Collection,
  updates: readonly UpdateOfOne[],
  limits: { maxTimeMS?: number } = {},
): Promise<{ refused: Refused[]; matched: number }> {
  const operations = updates.map(({ filter, update }) => ({ updateOne: { filter, update, hint: ID_INDEX } }))
  if (operations.length === 0) return { refused: [], matched: 0 }
  try {
    const { matchedCount } = await collection.bulkWrite(operations, { ordered: false, ...limits })
    return { refused: [], matched: matchedCount }
  } catch (error) {
    const { result, writeErrors = [] } = error as { result?: { matchedCount: number }; writeErrors?: Refusals }
    const refusals = Array.isArray(writeErrors) ? writeErrors : [writeErrors]
    const refused = refusals.map(({ index, code, errmsg }) => {
      return { id: updates[index]!.id, error: new MongoServerError({ message: errmsg ?? '', code }) }
    })
    const foreign = refused.find((one) => !isDefiniteRefusal(one.error))
    if (foreign) throw foreign.error
    if (
      refused.length === 0 ||
      (error as { hasErrorLabel?(label: string): boolean }).hasErrorLabel?.('RetryableWriteError')
    )
      throw error
    return { refused, matched: result?.matchedCount ?? 0 }
  }
}

type Refusals = WriteError | readonly WriteError[]

/** The documents that match, in the order of `_id`: that of a write with a hint on `_id`. */
export async function idsOf(
  collection: Collection,
  filter: Filter<Document>,
  limits: { maxTimeMS?: number } = {},
): Promise<unknown[]> {
  const found = await collection
    .find(filter, { projection: { _id: 1 }, hint: ID_INDEX, ...limits, ...AS_IT_STANDS })
    .toArray()
  return found.map((document) => document['_id'] as unknown)
}
