import { type Collection, type Document, MongoServerError } from 'mongodb'

const BAD_VALUE = 2

/** A query names an index of the protocol that isn't there. That is an error, never a scan: nothing is read until it is back. */
export class MissingIndex extends MongoServerError {
  constructor(collection: string, key: Document) {
    const what = `${collection} has no index ${JSON.stringify(key)}, without which nothing is read from it`
    const remedy = "to create it: phaselock check --repair, or start a replica again with indexes: 'create'"
    super({ message: `${what}; ${remedy}`, code: BAD_VALUE })
  }

  override get name(): string {
    return 'MissingIndex'
  }
}

/** Whether a query was refused because the index that it names isn't there; one that is already reading the index is killed instead. */
export const namesMissingIndex = (error: unknown): boolean =>
  error instanceof MongoServerError && error.code === BAD_VALUE && /\bhint\b/i.test(error.message)

/**
 * Runs a query that names an index.
 * @throws MissingIndex if it isn't there
 */
export async function onIndex<K extends Document, T>(
  { collectionName }: Pick<Collection, 'collectionName'>,
  key: K,
  use: (index: K) => Promise<T>,
): Promise<T> {
  try {
    return await use(key)
  } catch (error) {
    throw namesMissingIndex(error) ? new MissingIndex(collectionName, key) : error
  }
}
