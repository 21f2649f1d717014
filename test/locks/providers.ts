import { randomBytes } from 'node:crypto'
import { Redis } from 'ioredis'
import { MongoClient } from 'mongodb'
import { createPool } from 'mysql2/promise'
import { Pool } from 'pg'
import { holderIdentity } from '../../src/locks/acquisition.js'
import type { OperableLockProvider } from '../../src/locks/lock-provider.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { MemoryLockStore } from '../../src/locks/providers/memory.js'
import { MongoLockStore } from '../../src/locks/providers/mongodb.js'
import { MysqlLockStore } from '../../src/locks/providers/mysql.js'
import { PostgresLockStore } from '../../src/locks/providers/postgres.js'
import { RedisLockStore } from '../../src/locks/providers/redis.js'
import { RedisQuorumStore } from '../../src/locks/providers/redis-quorum.js'
import { startMariadb } from '../../tools/servers/mariadb.mjs'
import { startPostgres } from '../../tools/servers/postgres.mjs'
import { startRedis } from '../../tools/servers/redis.mjs'
import { testServerUri, withDatabase } from '../support/database.js'

export type Kind = 'mongodb' | 'postgres' | 'mysql' | 'redis' | 'redis-quorum' | 'memory'

/** One kind of lock provider on its real server, in a place of its own there. */
export interface ProviderUnderTest {
  readonly kind: Kind
  /** Another process by all that matters: a provider of its own, over the same locks. */
  provider(name?: string): OperableLockProvider
  /** What a child process opens the same locks with: an argument of `openLockProvider`. */
  readonly options: Record<string, string>
  /** What an operator, or somebody careless, does: the lock's record is gone. */
  deleteRecord(name: string): Promise<void>
  /** As if the server's clock had stepped back by so much since the name was locked; in memory there is no clock that steps. */
  clockSteppedBack(name: string, ms: number): Promise<void>
  close(): Promise<void>
}

export async function mongoUnderTest(uri = testServerUri()): Promise<ProviderUnderTest> {
  const url = withDatabase(uri, `t_${randomBytes(8).toString('hex')}`)
  const client = await new MongoClient(url, { serverSelectionTimeoutMS: 20_000 }).connect()
  const db = client.db()
  return {
    kind: 'mongodb',
    options: { url },
    provider: (name = 'here') => new NamedLocks(new MongoLockStore(db), holderIdentity(name)),
    deleteRecord: async (name) => void (await db.collection<{ _id: string }>('shedLock').deleteOne({ _id: name })),
    clockSteppedBack: async (name, ms) => {
      const later = { lockedAt: { $add: ['$lockedAt', ms] }, lockUntil: { $add: ['$lockUntil', ms] } }
      await db.collection<{ _id: string }>('shedLock').updateOne({ _id: name }, [{ $set: later }])
    },
    close: async () => {
      await db.dropDatabase().catch(() => undefined)
      await client.close()
    },
  }
}

export async function postgresUnderTest(): Promise<ProviderUnderTest> {
  const server = await startPostgres({ durable: false })
  const pool = new Pool({ connectionString: server.url, max: 10 })
  pool.on('error', () => undefined)
  return {
    kind: 'postgres',
    options: { url: server.url },
    provider: (name = 'here') => new NamedLocks(new PostgresLockStore(pool), holderIdentity(name)),
    deleteRecord: async (name) => void (await pool.query('DELETE FROM shedlock WHERE name = $1', [name])),
    clockSteppedBack: async (name, ms) => {
      const later = 'locked_at = locked_at + $2::interval, lock_until = lock_until + $2::interval'
      await pool.query(`UPDATE shedlock SET ${later} WHERE name = $1`, [name, `${ms} milliseconds`])
    },
    close: async () => {
      await pool.end()
      await server.stop()
    },
  }
}

const deleteKeys = (client: Redis, name: string) =>
  client.del(`job-lock:default:${name}`, `fence:{job-lock:default:${name}}`)

async function stepBack(client: Redis, name: string, ms: number): Promise<void> {
  const key = `job-lock:default:${name}`
  const [, holder, at] = /^(.*)@(\d+)$/.exec((await client.get(key))!)!
  await client.set(key, `${holder}@${Number(at) + ms}`, 'PX', (await client.pttl(key)) + ms)
}

export async function redisUnderTest(): Promise<ProviderUnderTest> {
  const server = await startRedis({ persistence: 'none' })
  const client = new Redis(server.url, { maxRetriesPerRequest: 1 })
  client.on('error', () => undefined)
  return {
    kind: 'redis',
    options: { url: server.url },
    provider: (name = 'here') => new NamedLocks(new RedisLockStore(client), holderIdentity(name)),
    deleteRecord: async (name) => void (await deleteKeys(client, name)),
    clockSteppedBack: (name, ms) => stepBack(client, name, ms),
    close: async () => {
      client.disconnect()
      await server.stop()
    },
  }
}

/** Real servers speak both clients' protocol: this one is MariaDB, asked by mysql2. */
export async function mysqlUnderTest(): Promise<ProviderUnderTest> {
  const server = await startMariadb()
  const pool = createPool({ uri: server.url, connectionLimit: 10 })
  return {
    kind: 'mysql',
    options: { url: server.url },
    provider: (name = 'here') => new NamedLocks(new MysqlLockStore(pool), holderIdentity(name)),
    deleteRecord: async (name) => void (await pool.execute('DELETE FROM shedlock WHERE name = ?', [name])),
    clockSteppedBack: async (name, ms) => {
      const later = (column: string) => `${column} = TIMESTAMPADD(MICROSECOND, ${ms * 1_000}, ${column})`
      await pool.execute(`UPDATE shedlock SET ${later('locked_at')}, ${later('lock_until')} WHERE name = ?`, [name])
    },
    close: async () => {
      await pool.end()
      await server.stop()
    },
  }
}

/** Three servers. Clocks of one machine don't drift: with the usual factor an hour would end 36 s later on the servers. */
export async function redisQuorumUnderTest(): Promise<ProviderUnderTest> {
  const servers = await Promise.all([0, 1, 2].map(() => startRedis({ persistence: 'none' })))
  const clients = servers.map(({ url }) => {
    const client = new Redis(url, { maxRetriesPerRequest: 1 })
    client.on('error', () => undefined)
    return client
  })
  const quorum = { retryDelayMs: 50, driftFactor: 0.0001 }
  const each = (on: (client: Redis) => Promise<unknown>) => Promise.all(clients.map(on))
  return {
    kind: 'redis-quorum',
    options: { url: servers.map(({ url }) => url).join(',') },
    provider: (name = 'here') => {
      const nodes = clients.map((client) => new RedisLockStore(client))
      return new NamedLocks(new RedisQuorumStore(nodes, quorum), holderIdentity(name))
    },
    deleteRecord: async (name) => void (await each((client) => deleteKeys(client, name))),
    clockSteppedBack: async (name, ms) => void (await each((client) => stepBack(client, name, ms))),
    close: async () => {
      for (const client of clients) client.disconnect()
      await Promise.all(servers.map((server) => server.stop()))
    },
  }
}

export async function memoryUnderTest(): Promise<ProviderUnderTest> {
  const store = new MemoryLockStore()
  return {
    kind: 'memory',
    options: {},
    provider: (name = 'here') => new NamedLocks(store, holderIdentity(name)),
    deleteRecord: async () => undefined,
    clockSteppedBack: async () => undefined,
    close: async () => undefined,
  }
}

export const UNDER_TEST = {
  mongodb: () => mongoUnderTest(),
  postgres: postgresUnderTest,
  mysql: mysqlUnderTest,
  redis: redisUnderTest,
  'redis-quorum': redisQuorumUnderTest,
  memory: memoryUnderTest,
} satisfies Record<Kind, () => Promise<ProviderUnderTest>>
