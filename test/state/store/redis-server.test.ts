import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Redis } from 'ioredis'
import { SharedStore } from 'phaselock-state'
import { loggerOf } from '../../../src/phases/reporting/logger.js'
import { startRedis } from '../../../tools/servers/redis.mjs'
import { eventually } from '../../support/database.js'

describe('values in a Redis that goes away', () => {
  let server: Awaited<ReturnType<typeof startRedis>>
  const clients: Redis[] = []
  beforeAll(async () => {
    server = await startRedis({ persistence: 'always' })
  }, 240_000)
  afterAll(async () => {
    for (const client of clients) client.disconnect()
    await server?.stop()
  })

  const opened = (lines: string[] = [], lazyConnect = false) => {
    const client = new Redis(server.url, { maxRetriesPerRequest: 1, lazyConnect })
    client.on('error', () => undefined)
    clients.push(client)
    return new SharedStore({ client, logger: loggerOf((level, message) => void lines.push(`${level}: ${message}`)) })
  }
  const hears = (store: SharedStore) =>
    (store as unknown as { parts: { hearing: { isHearing: boolean } } }).parts.hearing.isHearing

  test('one that stands still is away after 5 s, and back when it goes on', async () => {
    const values = opened().of<number>('still')
    await values.set('a', 1)
    process.kill(server.pid!, 'SIGSTOP')
    const [got, set, otherwise] = await Promise.allSettled([
      values.get('a'),
      values.set('b', 1),
      values.get('a', { otherwise: 7 }),
    ])
    process.kill(server.pid!, 'SIGCONT')
    const away = {
      name: 'StoreUnavailable',
      store: 'redis',
      message: expect.stringContaining('no answer within 5000 ms'),
    }
    expect([got, set]).toMatchObject([{ reason: away }, { reason: away }])
    expect(otherwise).toMatchObject({ value: 7 })
    await eventually(async () => (await values.get('a')) === 1)
  })

  test('a layer is deaf from when its connection is cut, and starts empty when it hears again', async () => {
    const lines: string[] = []
    const [one, two] = [opened(lines), opened()]
    const layered = one.of<number>('cut', { layer: true })
    const other = two.of<number>('cut', { layer: true })
    await eventually(() => hears(one) && hears(two))
    await other.set('a', 1)
    expect(await layered.get('a')).toBe(1)
    await server.kill9()
    await eventually(() => !hears(one))
    await expect(layered.get('a')).rejects.toMatchObject({ name: 'StoreUnavailable' })
    await expect(other.set('late', 1)).rejects.toMatchObject({ name: 'StoreUnavailable' })
    await server.restart()
    await eventually(() => hears(one) && hears(two))
    expect(await layered.get('a')).toBe(1)
    expect(await other.get('late')).toBeUndefined()
    await other.set('a', 2)
    await eventually(async () => (await layered.get('a')) === 2)
    expect(lines.filter((line) => /doorbell/.test(line))).toEqual([
      expect.stringMatching(/^warn: the doorbell of the shared state cannot be heard/),
      'info: the doorbell of the shared state can be heard again',
    ])
    await Promise.all([one.close(), two.close()])
  })

  test('rings name keys, or a whole prefix if they are many, and what cannot be read empties all', async () => {
    const [one, two] = [opened(), opened()]
    const layered = one.of<number>('rung', { layer: true })
    const other = two.of<number>('rung', { layer: true })
    await eventually(() => hears(one))
    await Promise.all(Array.from({ length: 200 }, (_, n) => other.set(`k${n}`, n)))
    await eventually(async () => (await layered.getMany(['k0', 'k199'])).size === 2)
    await Promise.all(Array.from({ length: 200 }, (_, n) => layered.get(`k${n}`)))
    await Promise.all(Array.from({ length: 200 }, (_, n) => other.set(`k${n}`, -n)))
    await eventually(async () => (await layered.get('k199')) === -199 && (await layered.get('k1')) === -1)
    await clients[0]!.publish('phaselock-state', 'not from us')
    expect(await layered.get('k1')).toBe(-1)
    await Promise.all([one.close(), two.close()])
  })

  test.each([false, true])(
    'an orderly close logs nothing; a client is heard whether lazy or not (%s)',
    async (lazyConnect) => {
      const lines: string[] = []
      const store = opened(lines, lazyConnect)
      const values = store.of<number>('lazy', { layer: true })
      await eventually(() => hears(store))
      await values.set('a', 1)
      const subscribers = async () => {
        const [, count] = (await clients[0]!.call('PUBSUB', 'NUMSUB', 'phaselock-state')) as unknown[]
        return Number(count)
      }
      expect(await subscribers()).toBe(1)
      await store.close()
      await eventually(async () => (await subscribers()) === 0)
      expect(lines).toEqual([])
    },
  )
})
