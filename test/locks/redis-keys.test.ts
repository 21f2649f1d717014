import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Redis } from 'ioredis'
import { RedisLockStore } from '../../src/locks/providers/redis.js'
import { sleep } from '../../src/time/index.js'
import { freePort } from '../../tools/servers/free-port.mjs'
import { type RedisServer, startRedis } from '../../tools/servers/redis.mjs'
import { eventually } from '../support/database.js'

let server: RedisServer
let client: Redis
/** A cluster of one: commands on keys of two slots are refused. */
beforeAll(async () => {
  const settings = { 'cluster-enabled': 'yes', 'cluster-port': await freePort() }
  server = await startRedis({ persistence: 'none', settings })
  client = new Redis(server.url)
  await client.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383')
  await eventually(async () => String(await client.call('CLUSTER', 'INFO')).includes('cluster_state:ok'))
}, 120_000)
afterAll(async () => {
  client?.disconnect()
  await server?.stop()
})

const request = (name: string, token = 'a~1#1') => ({
  name,
  token,
  lockAtMostForMs: 3_600_000,
  reentrySuffix: undefined,
})

describe('keys in Redis', () => {
  test.each(['plain', '{tag}', 'a{tag}b', '{', '}', 'a{b', 'a}b', '}{', '{}', '{}{x}', 'x}{y}', '{{x}}', 'Ключ}'])(
    'the lock %s and its fence are in one slot of a cluster',
    async (name) => {
      const store = new RedisLockStore(client)
      const first = await store.take(request(name))
      expect(first).toMatchObject({ fence: expect.any(Number) })
      expect(await store.find(name)).toMatchObject({ name, fence: first!.fence })
      expect(await store.free(name, 'a~1#1', 0)).toBe(true)
      expect((await store.take(request(name, 'b~1#1')))!.fence).toBeGreaterThan(first!.fence)
    },
  )
})

describe('an acquisition that is sent again', () => {
  const fenceKey = 'fence:{job-lock:default:again}'
  const sent = request('again')

  test('has the same answer', async () => {
    const store = new RedisLockStore(client)
    const first = (await store.take(sent))!
    expect(await store.take(sent)).toEqual({ ...first, lockUntil: expect.any(Date) })
  })

  test.each([
    ['evicted', () => client.del(fenceKey)],
    ['overwritten by a text', () => client.set(fenceKey, 'many')],
    ['overwritten by what is no number', () => client.set(fenceKey, 'nan')],
    ['overwritten by 0', () => client.set(fenceKey, '0')],
  ])('has a higher fence when the counter was %s meanwhile', async (_, lose) => {
    const store = new RedisLockStore(client)
    const first = (await store.take(sent))!
    // Growth by the clock needs a millisecond: docs/caveats.md.
    await sleep(3)
    await lose()
    const again = (await store.take(sent))!
    expect(again.fence).toBeGreaterThan(first.fence)
    expect(again.lockedAt).toEqual(first.lockedAt)
    // And it is what the next one counts from.
    expect(await store.find('again')).toMatchObject({ fence: again.fence })
    await store.free('again', sent.token, 0)
    expect((await store.take({ ...sent, token: 'b~1#1' }))!.fence).toBeGreaterThan(again.fence)
    await store.free('again', 'b~1#1', 0)
    await store.take(sent)
  })
})
