import { Redis } from 'ioredis'
import { startRedis } from '../../../tools/servers/redis.mjs'
import { openedStores, type StoreUnderTest } from './stores.js'

export async function redisUnderTest(): Promise<StoreUnderTest & { readonly redis: Redis; readonly url: string }> {
  const server = await startRedis({ persistence: 'none' })
  const redis = new Redis(server.url, { maxRetriesPerRequest: 1 })
  redis.on('error', () => undefined)
  const opened = openedStores({ client: redis })
  return {
    kind: 'redis',
    redis,
    url: server.url,
    open: opened.open,
    expire: async (key) => void (await redis.pexpireat(key, 1)),
    damage: async (key) => void (await redis.set(key, 'x y')),
    records: () => redis.dbsize(),
    close: async () => {
      await opened.close()
      redis.disconnect()
      await server.stop()
    },
  }
}
