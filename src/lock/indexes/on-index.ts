import { type Collection, type Document, MongoServerError } from 'mongodb'
import { isServerError } from '../../database/index.js'
import { CLAIM_INDEX } from '../terms/terms.js'

/** Takes the claim index's place while that is rebuilt: it has the same order, so a look reads the same keys. */
export const STAND_IN_INDEX = { ...CLAIM_INDEX, _id: 1 } as const

export type ClaimIndex = typeof CLAIM_INDEX | typeof STAND_IN_INDEX

/**
 * The claim index for each value of a field. The field comes first, so that the planner never takes it for a look at a phase, which
 * names no index.
 */
export const orderIndex = (field: string) => ({ [field]: 1, phase: 1, lockedAt: 1, updatedAt: 1 }) as const
export type OrderIndex = ReturnType<typeof orderIndex>

const BAD_VALUE = 2
const QUERY_PLAN_KILLED = 175

/** A query names an index of the protocol that isn't there. That is an error, never a scan: nothing is read until it is back. */
export class MissingIndex extends MongoServerError {
  constructor(collection: string, key: Document) {
    const what = `${collection} has no index ${JSON.stringify(key)}, and nothing is read from it without one`
    const remedy = "to create it, run phaselock check --repair, or restart a replica with indexes: 'create'"
    super({ message: `${what}; ${remedy}`, code: BAD_VALUE })
  }

  override get name(): string {
    return 'MissingIndex'
  }
}

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

/**
 * Runs a query that names the claim index. If the server says that the index isn't there, or was dropped during the query, tries
 * its stand-in, and then the index itself once more, which may be back.
 * @throws the last error: MissingIndex if neither is there
 */
export async function onClaimIndex<T>(
  collection: Pick<Collection, 'collectionName'>,
  use: (index: ClaimIndex) => Promise<T>,
): Promise<T> {
  for (const index of [CLAIM_INDEX, STAND_IN_INDEX]) {
    try {
      return await use(index)
    } catch (error) {
      const wasKilled = isServerError(error, QUERY_PLAN_KILLED)
      if (!wasKilled && !namesMissingIndex(error)) throw error
    }
  }
  return onIndex(collection, CLAIM_INDEX, use)
}

/** True if a query was refused because the index that it names isn't there; one that is already reading the index is killed instead. */
const namesMissingIndex = (error: unknown): boolean =>
  isServerError(error, BAD_VALUE) && /\bhint\b/i.test(error.message)
