import { randomBytes } from 'node:crypto'
import { type Db, MongoClient } from 'mongodb'
import { SharedStore, type SharedStoreOptions } from 'phaselock-state'
import { sharedMemory } from '../../../packages/state/src/store/memory.js'
import { silentLogger } from '../../../src/phases/reporting/logger.js'
import { testServerUri, withDatabase } from '../../support/database.js'

export type Kind = 'mongodb' | 'redis' | 'memory'

/** One kind of store on its real server, in a place of its own there. */
export interface StoreUnderTest {
  readonly kind: Kind
  /** Another process by all that matters: a store of its own, over the same values. */
  open(options?: SharedStoreOptions): SharedStore
  /** As if the ttl of the value under this key had just passed. */
  expire(key: string): Promise<void>
  /** What somebody careless does: something else stands under the key. */
  damage(key: string): Promise<void>
  /** The number of records that the server still has. */
  records(): Promise<number>
  close(): Promise<void>
}

export async function mongoUnderTest(): Promise<StoreUnderTest & { readonly db: Db; readonly uri: string }> {
  const uri = withDatabase(testServerUri(), `t_${randomBytes(8).toString('hex')}`)
  const client = await new MongoClient(uri, { serverSelectionTimeoutMS: 20_000 }).connect()
  const db = client.db()
  const values = db.collection<{ _id: string }>('phaselock.state')
  const opened = openedStores({ client: db })
  return {
    kind: 'mongodb',
    db,
    uri,
    open: opened.open,
    expire: async (key) => void (await values.updateOne({ _id: key }, [{ $set: { expiresAt: '$$NOW' } }])),
    damage: async (key) => void (await values.replaceOne({ _id: key }, { version: 'x', value: 'y' }, { upsert: true })),
    records: () => values.countDocuments(),
    close: async () => {
      await opened.close()
      await db.dropDatabase().catch(() => undefined)
      await client.close()
    },
  }
}

/** All stores of a test file share the memory of its process: their prefixes keep them apart. */
export async function memoryUnderTest(): Promise<StoreUnderTest> {
  const values = (sharedMemory as unknown as { values: Map<string, object> }).values
  const opened = openedStores({ env: {} })
  return {
    kind: 'memory',
    open: opened.open,
    expire: async (key) => void values.set(key, { ...values.get(key), untilMs: 0 }),
    damage: async (key) => void values.set(key, { ...values.get(key), encoded: Buffer.from('y') }),
    records: async () => values.size,
    close: opened.close,
  }
}

export function openedStores(place: SharedStoreOptions) {
  const opened: SharedStore[] = []
  return {
    open: (options: SharedStoreOptions = {}) => {
      const store = new SharedStore({ ...place, logger: silentLogger, ...options })
      opened.push(store)
      return store
    },
    close: async () => void (await Promise.all(opened.map((one) => one.close()))),
  }
}
