import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { Redis } from 'ioredis'
import { MongoClient } from 'mongodb'
import { Pool } from 'pg'
import { protocolClientOptions } from '../../src/database/index.js'
import { holderIdentity } from '../../src/locks/acquisition.js'
import { LockProviderUnavailable } from '../../src/locks/errors.js'
import { LockExecutor } from '../../src/locks/lock-executor.js'
import type { LockProvider, SimpleLock } from '../../src/locks/lock-provider.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { openLockProvider } from '../../src/locks/open-provider.js'
import { MongoLockStore } from '../../src/locks/providers/mongodb.js'
import { PostgresLockStore } from '../../src/locks/providers/postgres.js'
import { RedisLockStore } from '../../src/locks/providers/redis.js'
import { startMariadb } from '../../tools/servers/mariadb.mjs'
import { startPostgres } from '../../tools/servers/postgres.mjs'
import { startRedis } from '../../tools/servers/redis.mjs'
import { eventually, testDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'

jest.setTimeout(240_000)

const config = { name: 'down', lockAtMostFor: '1h' }

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

/** Nothing is granted, and nothing is run. */
async function grantsNothing(provider: LockProvider): Promise<void> {
  const ran: string[] = []
  const executed = new LockExecutor(provider).executeWithLock(() => ran.push('ran'), { ...config, name: 'other' })
  await expect(executed).rejects.toThrow(LockProviderUnavailable)
  expect(ran).toEqual([])
}

/** The server is back: granted at once, whatever became of what it was asked before. */
const grantedAgain = (provider: LockProvider): Promise<SimpleLock> =>
  eventually(async () => (await provider.lock(config)) ?? Promise.reject(new Error('it is held')), {
    timeoutMs: 60_000,
  })

/** Each keeps its locks on disk before it grants them. */
const SERVERS = {
  postgres: () => startPostgres(),
  mysql: () => startMariadb(),
  redis: () => startRedis({ persistence: 'always' }),
}

describe.each(Object.keys(SERVERS) as (keyof typeof SERVERS)[])('a %s server that is killed', (kind) => {
  test('grants nothing and says so, and grants again when it is back', async () => {
    const server = await SERVERS[kind]()
    closing.push(() => server.stop())
    const provider = await openLockProvider({ url: server.url, env: {} })
    closing.push(() => provider.close())
    const held = (await provider.lock(config))!
    await server.kill9()
    await grantsNothing(provider)
    await expect(held.extend('1h')).rejects.toThrow(LockProviderUnavailable)
    await expect(held.unlock()).rejects.toThrow(
      /expected the (postgres|mysql|redis) lock provider to unlock 'down', got: /,
    )
    await server.restart()
    // The lock is still there: the server wrote it to disk before it granted it.
    expect(await eventually(() => provider.find('down'), { timeoutMs: 60_000 })).toMatchObject({ held: true })
    expect(await held.unlock()).toBe(true)
    expect((await grantedAgain(provider)).fence).toBeGreaterThan(held.fence)
  })
})

describe('a server that does what it is asked and never says so', () => {
  test('mongodb: the reply is lost with the connection', async () => {
    const { uri, db, drop } = await testDatabase()
    closing.push(drop)
    const proxy = await TcpProxy.start(uri)
    closing.push(() => proxy.stop())
    const client = await new MongoClient(proxy.uri, { ...protocolClientOptions(9_000), retryWrites: false }).connect()
    closing.push(() => client.close())
    const provider = new NamedLocks(new MongoLockStore(client.db()), holderIdentity('cut'))
    proxy.cutAfter('findAndModify')
    await expect(provider.lock(config)).rejects.toThrow(LockProviderUnavailable)
    // Granted, and nobody knew.
    expect(await db.collection('shedLock').countDocuments({ lockedBy: /^cut~/ })).toBe(1)
    proxy.refuse()
    await grantsNothing(provider)
    proxy.pass()
    await grantedAgain(provider)
  })

  test('postgres: it waits for a row longer than we do', async () => {
    const server = await startPostgres({ durable: false })
    closing.push(() => server.stop())
    const pool = new Pool({ connectionString: server.url })
    closing.push(() => pool.end())
    const provider = new NamedLocks(new PostgresLockStore(pool, { answerWithinMs: 500 }), holderIdentity('slow'))
    const { fence } = await grantedAgain(provider)
    await eventually(async () => await provider.release(config.name))
    const other = await pool.connect()
    await other.query('BEGIN')
    await other.query("SELECT 1 FROM shedlock WHERE name = 'down' FOR UPDATE")
    await expect(provider.lock(config)).rejects.toThrow(/no answer within 500 ms; nothing is run; it may/)
    await other.query('COMMIT')
    other.release()
    // It is granted late, and freed after that, though nobody asks for it again.
    await eventually(async () => {
      const { rows } = await pool.query("SELECT 1 FROM shedlock WHERE locked_by ~ '~released$' AND fence > $1", [fence])
      return rows.length === 1
    })
    await grantedAgain(provider)
  })

  test('redis: it is stopped', async () => {
    const server = await startRedis({ persistence: 'none' })
    closing.push(() => server.stop())
    const client = new Redis(server.url)
    closing.push(() => client.disconnect())
    const provider = new NamedLocks(new RedisLockStore(client, { answerWithinMs: 500 }), holderIdentity('stopped'))
    await eventually(async () => await (await provider.lock(config))?.unlock())
    process.kill(server.pid!, 'SIGSTOP')
    try {
      await expect(provider.lock(config)).rejects.toThrow(LockProviderUnavailable)
    } finally {
      process.kill(server.pid!, 'SIGCONT')
    }
    await grantedAgain(provider)
  })
})
