import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from '@jest/globals'
import { chooseProvider, type ProviderChoice } from '../../src/locks/choose-provider.js'
import { InvalidLockDuration, lockDurationMs } from '../../src/locks/durations.js'
import { InvalidLockProvider } from '../../src/locks/errors.js'
import { openLockProvider } from '../../src/locks/open-provider.js'
import { useDatabase } from '../support/database.js'

const DIST = new URL('../../dist/', import.meta.url)

describe('durations', () => {
  test.each([
    ['PT50S', 50_000],
    ['PT1M30.5S', 90_500],
    ['P1DT2H', 93_600_000],
    ['pt0.25s', 250],
    ['-PT5S', -5_000],
    ['PT-5S', -5_000],
    ['50s', 50_000],
    ['1.5m', 90_000],
    ['-2s', -2_000],
    // As ShedLock's own converter and Java's Duration.parse read them.
    ['10S', 10_000],
    ['10MS', 10],
    ['2H', 7_200_000],
    ['10M', 600_000],
    ['+10s', 10_000],
    ['+PT15M', 900_000],
    ['PT+5S', 5_000],
    ['-PT-5S', 5_000],
    ['PT1,5S', 1_500],
  ])('%j are %d ms', (given, ms) => {
    expect(lockDurationMs(given)).toBe(ms)
  })

  test.each([
    ...['50', '+50', 'P', 'PT', '+', '-', 'P1M', 'P1Y', '10us', '10ns', '10xx', '10 s', '++10s', '+-10s', 'soon', ''],
    ...['5 fortnights', Number.NaN, Number.POSITIVE_INFINITY, 250, 0, 10n, null, undefined, {}],
  ])('%p is refused', (given) => {
    expect(() => lockDurationMs(given)).toThrow(InvalidLockDuration)
  })

  test('a text without a unit is told to add one', () => {
    expect(() => lockDurationMs('+50')).toThrow("got \"+50\"; add the unit ('+50ms' or '+50s')")
    expect(() => lockDurationMs(50)).toThrow("got 50; add the unit ('50ms' or '50s')")
  })
})

describe('which provider', () => {
  const db = { collection: () => ({}), command: async () => ({}) }
  const pool = { query: async () => ({}) }
  const redis = { call: async () => null }

  test.each<[Partial<ProviderChoice>, string]>([
    [{}, 'memory'],
    [{ url: 'redis://h' }, 'redis'],
    [{ url: 'rediss://h' }, 'redis'],
    [{ url: 'postgresql://h/d' }, 'postgres'],
    [{ url: 'mongodb+srv://h/d' }, 'mongodb'],
    [{ url: 'mysql://h/d' }, 'mysql'],
    [{ url: 'mariadb://h/d' }, 'mysql'],
    [{ url: 'redis://a, rediss://b,redis://c' }, 'redis-quorum'],
    [{ url: 'mongodb://a,b,c/d' }, 'mongodb'],
    [{ client: db }, 'mongodb'],
    [{ client: { query: async () => [], execute: async () => [], getConnection: async () => ({}) } }, 'mysql'],
    [{ client: [redis, redis, redis] }, 'redis-quorum'],
    [{ client: pool }, 'postgres'],
    [{ client: redis }, 'redis'],
    [{ client: { sendCommand: async () => null } }, 'redis'],
    [{ env: { MONGODB_URI: 'mongodb://h' } }, 'mongodb'],
    [{ hasDatabase: true }, 'mongodb'],
    [{ hasDatabase: true, mode: 'single' }, 'memory'],
    [{ mode: 'single', env: { KUBERNETES_SERVICE_HOST: '10.0.0.1' } }, 'memory'],
    [{ provider: 'memory', hasDatabase: true }, 'memory'],
  ])('%j: %s', (choice, kind) => {
    expect(chooseProvider({ env: {}, ...choice })).toBe(kind)
  })

  test.each<[Partial<ProviderChoice>, RegExp]>([
    [{ env: { POD_NAME: 'api-1' } }, /POD_NAME says that there are several replicas.*PHASELOCK_MODE=single/],
    [{ mode: 'distributed' }, /the mode is distributed: locks in memory would not exclude each other/],
    [
      { provider: 'redis' },
      /expected a url or a client for locks in redis, got neither; set PHASELOCK_LOCKS_URL to redis:\/\//,
    ],
    [{ provider: 'redis', url: 'postgres://u:secret@h/d' }, /expected a url for locks in redis, got one for postgres/],
    [{ url: 'localhost:6379' }, /begins with mongodb:\/\/.*, got one without a scheme/],
    [{ url: 'redis://h', client: db }, /got both; keep one/],
    [{ client: {} }, /client: expected a MongoDB Db, a Pool of pg, mysql2 or mariadb/],
    [{ client: [redis, pool] }, /expected a list of clients of ioredis or redis, one for each server/],
    [{ provider: 'redis-quorum', url: 'redis://h' }, /expected a url for locks in redis-quorum, got one for redis/],
    [{ provider: 'mysql' }, /set PHASELOCK_LOCKS_URL to mysql:\/\//],
  ])('%j is refused', (choice, message) => {
    const chosen = () => chooseProvider({ env: {}, ...choice })
    expect(chosen).toThrow(InvalidLockProvider)
    expect(chosen).toThrow(message)
    expect(chosen).not.toThrow(/secret/)
  })

  test('the environment decides what the code leaves open; what it has wrong is refused', async () => {
    const env = { PHASELOCK_LOCKS: 'memory', MONGODB_URI: 'mongodb://nowhere' }
    const [one, two] = [await openLockProvider({ env, name: 'one' }), await openLockProvider({ env, name: 'two' })]
    const config = { name: 'one process', lockAtMostFor: '1h' }
    const held = (await one.lock(config))!
    expect([one.kind, await two.lock(config)]).toEqual(['memory', undefined])
    await held.unlock()
    await expect(openLockProvider({ env: { PHASELOCK_MODE: 'many' } })).rejects.toThrow(
      /mode: expected one of auto, single/,
    )
    for (const urls of [
      ['a', 'b'],
      ['a', 'b', 'c'],
    ]) {
      const url = urls.map((host) => `redis://${host}.invalid`).join(',')
      const opened = openLockProvider({ url, retryCount: urls.length === 2 ? 1 : -1, env: {} })
      await expect(opened).rejects.toThrow(/at least 3 Redis servers|retryCount: expected a whole number/)
    }
    const twice = ['redis://a', 'redis://b', 'redis://:secret@A:6379/1'].join(',')
    await expect(openLockProvider({ url: twice, env: {} })).rejects.toThrow(
      'expected different Redis servers for a quorum, got number 3 again, which is number 1; each has one vote',
    )
    await expect(openLockProvider({ client: [redis, redis, redis], env: {} })).rejects.toThrow(/number 2 again/)
    await expect(openLockProvider({ uri: 'x' } as never)).rejects.toThrow(
      /unknown option of locks 'uri'.*; known: provider/,
    )
  })
})

describe('by its URL', () => {
  const database = useDatabase()

  test('mongodb://: opened and closed here', async () => {
    const provider = await openLockProvider({ url: database.uri, collection: 'Locks', name: 'api-1', env: {} })
    await provider.lock({ name: 'x', lockAtMostFor: '1h' })
    await provider.close()
    expect(await database.db.collection('Locks').countDocuments({ lockedBy: /^api-1~/ })).toBe(1)
  })

  test.each([
    ["the process's own server: in the database that the environment names", {}, 1],
    ['a server of their own: in the database of its URL', { url: true }, 0],
  ])('%s', async (_what, { url }: { url?: boolean }, count) => {
    const named = database.db.client.db(`${database.db.databaseName}_named`)
    const env = { MONGODB_URI: database.uri, PHASELOCK_DATABASE: named.databaseName, PHASELOCK_LOCKS: 'mongodb' }
    const provider = await openLockProvider({ env, ...(url && { url: database.uri }), name: 'api-1' })
    await provider.lock({ name: 'x', lockAtMostFor: '1h' })
    await provider.close()
    const found = await named.listCollections().toArray()
    await named.dropDatabase()
    expect(found).toHaveLength(count)
  })
})

test('locks elsewhere load no MongoDB driver, and none of another server', async () => {
  const program = `
    import { registerHooks } from 'node:module'
    const seen = new Set()
    registerHooks({ load(url, context, next) { seen.add(url); return next(url, context) } })
    const locks = await import(${JSON.stringify(new URL('locks/index.js', DIST).href)})
    await import(${JSON.stringify(new URL('nest/locks/index.js', DIST).href)})
    const provider = await locks.openLockProvider({ url: 'redis://127.0.0.1:1', env: {} })
    await provider.lock({ name: 'x', lockAtMostFor: '1h' }).catch(() => undefined)
    await provider.close()
    const loaded = (name) => [...seen].some((url) => url.includes('/node_modules/' + name + '/'))
    console.log(['mongodb', 'bson', 'pg', 'ioredis'].filter(loaded).join())`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    cwd: fileURLToPath(new URL('../', DIST)),
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [printed] = await Promise.all([text(child.stdout), once(child, 'close')])
  expect(printed.trim()).toBe('ioredis')
})
