import type { Collection, Document } from 'mongodb'
import { isServerError } from '../../database/index.js'
import { CLAIM_INDEX, STAND_IN_INDEX } from '../../lock/index.js'
import { LockExecutor, mongoLockProvider } from '../../locks/index.js'

const INDEX_NOT_FOUND = 27

/** The time of the lock, renewed during a build, however long that takes; this long after an interruption a rebuild can be finished. */
const LOCKED_FOR = '1m'

/**
 * Rebuilds the claim index while replicas claim. First it builds a stand-in with the same order; claims switch to it once the index is gone
 * (see `onClaimIndex`). Called again after an interruption, it finishes.
 *
 * Invariant: one of the two exists at any time. A second rebuild would break that: it drops the index that the first has just built, while
 * the first drops the stand-in. So a named lock allows one at a time, and a rebuild that loses the lock stops before its next drop.
 * A replica that starts with `indexes: 'check'` in the meantime is refused.
 * @returns false if another rebuild is in progress: nothing was done
 * @throws LockLost, and the driver's errors; another call finishes the rest
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

/** Drops an index by its name: a key pattern may match several indexes. */
async function dropIndex(collection: Collection, key: Document): Promise<void> {
  const indexes = await collection.indexes()
  for (const index of indexes.filter((one) => JSON.stringify(one['key']) === JSON.stringify(key))) {
    try {
      await collection.dropIndex(String(index['name']))
    } catch (error) {
      if (!isServerError(error, INDEX_NOT_FOUND)) throw error
    }
  }
}
