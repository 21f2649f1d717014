import { type Collection, type Document, MongoServerError } from 'mongodb'
import { STAND_IN_INDEX } from './claim-index.js'
import { CLAIM_INDEX } from './constants.js'
import { stagesOf } from './plan-scans.js'

const INDEX_NOT_FOUND = 27

/**
 * The fields by which the claim index is multikey: an array was once stored there, and the index stays so when it is gone. Only
 * `lockedAt` costs: without bounds of their own, queries would read every document of a phase.
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

/**
 * Builds the claim index anew while replicas claim: a stand-in with the same order first, to which claims go over by
 * themselves as soon as the index is gone (see `onClaimIndex`). Done twice at once, or again after it was interrupted, it does
 * no harm. A replica that starts with `indexes: 'check'` meanwhile is refused.
 */
export async function rebuildClaimIndex(collection: Collection): Promise<void> {
  await collection.createIndex(STAND_IN_INDEX)
  await dropIndex(collection, CLAIM_INDEX)
  await collection.createIndex(CLAIM_INDEX)
  await dropIndex(collection, STAND_IN_INDEX)
}

/** By its name: a key pattern doesn't tell one of several alike. */
async function dropIndex(collection: Collection, key: Document): Promise<void> {
  const indexes = await collection.indexes()
  for (const index of indexes.filter((one) => JSON.stringify(one['key']) === JSON.stringify(key))) {
    try {
      await collection.dropIndex(String(index['name']))
    } catch (error) {
      if (!(error instanceof MongoServerError && error.code === INDEX_NOT_FOUND)) throw error
    }
  }
}
