import { jest } from '@jest/globals'
import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { PostgresLockStore } from '../../src/locks/providers/postgres.js'
import { RedisLockStore } from '../../src/locks/providers/redis.js'
import { startPostgres } from '../../tools/servers/postgres.mjs'
import { startRedis } from '../../tools/servers/redis.mjs'
import { ReplyCutter } from '../support/reply-cutter.js'
import { describeLostAnswer } from './lossy.js'

jest.setTimeout(240_000)

describeLostAnswer('postgres', async (closes) => {
  const server = closes(await startPostgres({ durable: false }), (one) => one.stop())
  const cutter = closes(await ReplyCutter.start(server.url), (one) => one.stop())
  const [pool, direct] = [cutter.url, server.url].map((connectionString) => {
    const one = new Pool({ connectionString })
    one.on('error', () => undefined)
    return closes(one, () => one.end())
  })
  const beside = new PostgresLockStore(direct!)
  await beside.migrate()
  return { store: new PostgresLockStore(pool!), beside, loseAnswer: () => cutter.cutReplyTo('INSERT INTO shedlock') }
})

describeLostAnswer('redis', async (closes) => {
  const server = closes(await startRedis({ persistence: 'none' }), (one) => one.stop())
  const cutter = closes(await ReplyCutter.start(server.url), (one) => one.stop())
  // It doesn't send again what it got no answer to.
  const client = closes(new Redis(cutter.url, { maxRetriesPerRequest: 0 }), (one) => one.disconnect())
  client.on('error', () => undefined)
  const direct = closes(new Redis(server.url), (one) => one.disconnect())
  const [store, beside] = [new RedisLockStore(client), new RedisLockStore(direct)]
  // From then on the server knows the script.
  await beside.take({ name: 'another', token: 'x', lockAtMostForMs: 1, reentrySuffix: undefined })
  return { store, beside, loseAnswer: () => cutter.cutReplyTo('EVALSHA') }
})
