import { type Collection, type Document, MongoServerError } from 'mongodb'
import { CLAIM_INDEX, STAND_IN_INDEX, stagesOf } from '../../lock/index.js'
import { LockExecutor, mongoLockProvider } from '../../locks/index.js'

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

/** Renewed while a build goes on, however long that takes; so long after a rebuild was interrupted it can be finished. */
const LOCKED_FOR = '1m'

/**
 * Builds the claim index anew while replicas claim: a stand-in with the same order first, to which claims go over by
 * themselves as soon as the index is gone (see `onClaimIndex`). Again after it was interrupted, it finishes.
 *
 * Invariant: one of the two is there at each point. A second rebuild would break it: it drops the index that the first has just
 * built, and the first drops the stand-in. So there is one at a time, by a named lock; who loses that stops before its next drop.
 * A replica that starts with `indexes: 'check'` meanwhile is refused.
 * @returns false: another is at it, nothing was done
 * @throws LockLost, and what the driver throws; what is left is finished by doing it again
 */
export async function rebuildClaimIndex(collection: Collection): Promise<boolean> {
  const drop = async (key: Document, signal: AbortSignal) => {
    signal.throwIfAborted()
    await dropIndex(collection, key)
  }
  const rebuilding = await new LockExecutor(mongoLockProvider(collection.db)).executeWithLock(
    async ({ signal }) => {
      await collection.createIndex(STAND_IN_INDEX)
      await drop(CLAIM_INDEX, signal)
      await collection.createIndex(CLAIM_INDEX)
      await drop(STAND_IN_INDEX, signal)
    },
    { name: `phaselock: claim index of ${collection.collectionName}`, lockAtMostFor: LOCKED_FOR, watchdog: true },
  )
  return rebuilding.executed
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
