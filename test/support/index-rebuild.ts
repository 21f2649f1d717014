import type { Collection } from 'mongodb'
import { STAND_IN_INDEX } from '../../src/lock/index.js'

/** As a rebuild of its claim index leaves a collection in the middle: only the stand-in is there. */
export async function amidRebuild<T extends object>(collection: Collection<T>): Promise<void> {
  await collection.createIndex(STAND_IN_INDEX)
  await collection.dropIndex('phase_1_lockedAt_1_updatedAt_1')
}
