import { type Collection, type IndexSpecification, MongoServerError } from 'mongodb'
import { buildIndex, type IndexBuild } from '../../database/index.js'
import { CLAIM_INDEX, STATE_INDEX } from '../terms/constants.js'

const INDEX_OPTIONS_CONFLICT = 85
const INDEX_KEY_SPECS_CONFLICT = 86

/**
 * Creates the two indexes that the protocol needs, if they are missing. A third is never created. One with the same key
 * but of another kind (hidden, partial) is left as it is: the check of query plans reports it and says what to do.
 */
export async function ensureLockIndexes(collection: Collection, build?: IndexBuild): Promise<void> {
  await ensureIndex(collection, CLAIM_INDEX, build)
  await ensureIndex(collection, STATE_INDEX, build)
}

async function ensureIndex(collection: Collection, key: IndexSpecification, build?: IndexBuild): Promise<void> {
  try {
    await buildIndex(collection, key, build)
  } catch (error) {
    const isOfAnotherKind =
      error instanceof MongoServerError &&
      (error.code === INDEX_OPTIONS_CONFLICT || error.code === INDEX_KEY_SPECS_CONFLICT)
    if (!isOfAnotherKind) throw error
  }
}
