import { type Collection, type Document, MinKey, MongoServerError } from 'mongodb'
import { CLAIM_INDEX } from '../terms/constants.js'
import { namesMissingIndex, onIndex } from './missing-index.js'

/** Takes the claim index's place while that is rebuilt: it has the same order, so a look reads the same keys. */
export const STAND_IN_INDEX = { ...CLAIM_INDEX, _id: 1 } as const

export type ClaimIndex = typeof CLAIM_INDEX | typeof STAND_IN_INDEX

const QUERY_PLAN_KILLED = 175

/**
 * Runs a query that names the claim index. If the server says that the index isn't there, or was dropped during the query, tries its
 * stand-in, and then the index itself once more, which may be back by then.
 * @throws the last error: MissingIndex if neither is there
 */
export async function onClaimIndex<T>(
  collection: Pick<Collection, 'collectionName'>,
  use: (index: ClaimIndex) => Promise<T>,
): Promise<T> {
  try {
    return await use(CLAIM_INDEX)
  } catch (error) {
    if (!isIndexGone(error)) throw error
  }
  try {
    return await use(STAND_IN_INDEX)
  } catch (error) {
    if (!isIndexGone(error)) throw error
    return onIndex(collection, CLAIM_INDEX, use)
  }
}

/** The first key of the index at this `lockedAt` and `updatedAt`, with all its fields, as `min` and `max` need. */
export function claimIndexKey(
  index: ClaimIndex,
  phase: string,
  lockedAt: unknown,
  updatedAt: unknown = new MinKey(),
): Document {
  return { phase, lockedAt, updatedAt, ...('_id' in index ? { _id: new MinKey() } : {}) }
}

function isIndexGone(error: unknown): boolean {
  return namesMissingIndex(error) || (error instanceof MongoServerError && error.code === QUERY_PLAN_KILLED)
}
