import { inspect } from 'node:util'
import { describe, expect, test } from '@jest/globals'
import { SharedStore, type SharedStoreOptions } from 'phaselock-state'
import { Guard } from '../../../packages/state/src/store/guard.js'
import { mongoLockProvider } from '../../../src/locks/index.js'
import { loggerOf, silentLogger } from '../../../src/phases/reporting/logger.js'
import { doDuty } from '../../../src/tasks/index.js'
import { eventually, useDatabase } from '../../support/database.js'
import { mongoUnderTest } from './stores.js'

describe('new SharedStore', () => {
  test.each<[string, SharedStoreOptions | object, RegExp]>([
    ['an unknown option', { collections: 'x' }, /unknown option 'collections'; known: client, environment, /],
    ['another client', { client: { query: () => 1 } }, /client: expected a Db of MongoDB, or a client of ioredis/],
    ['a logger without warn', { logger: { info: () => 1 } }, /logger: expected a logger with debug, info, warn/],
    ['an environment with a colon', { environment: 'a:b', env: {} }, /environment: expected 1 to 64 letters/],
    [
      'no client in a pod',
      { env: { POD_NAME: 'api-1' } },
      /POD_NAME says that there are several replicas, got none: values in memory/,
    ],
    ['no client when distributed', { env: { PHASELOCK_MODE: 'distributed' } }, /PHASELOCK_MODE is distributed/],
  ])('refuses %s', (_what, options, message) => {
    expect(() => new SharedStore(options)).toThrow(message)
  })

  test('keeps values in memory where there is one process', () => {
    expect(new SharedStore({ env: { POD_NAME: 'api-1', PHASELOCK_MODE: 'single' } }).kind).toBe('memory')
  })

  test.each<[object, RegExp]>([
    [{ ttl: '0s' }, /ttl: expected more than 0/],
    [{ ttl: 5 }, /ttl: expected a duration such as '30s'/],
    [{ layer: { maxAge: '2s' } }, /layer: maxAge: expected more than 0 and at most 1s, got '2s'/],
    [{ layer: { most: 0 } }, /most: expected a whole number from 1 to 100,000, got 0/],
    [{ tll: '1h' }, /unknown option 'tll'; known: ttl, environment, layer/],
  ])('of() refuses %j', (options, message) => {
    expect(() => new SharedStore({ env: {} }).of('x', options)).toThrow(message)
  })

  test('refuses prefixes with a colon, and calls with unknown options or without a function', async () => {
    const store = new SharedStore({ env: {} })
    for (const prefix of ['a:b', '', '.a', 'ä', 'x'.repeat(65)])
      expect(() => store.of(prefix)).toThrow(expect.objectContaining({ name: 'InvalidKey' }))
    const values = store.of<number>('x')
    for (const call of [
      () => values.get('a', { default: 1 } as never),
      () => values.set('a', 1, { ttlMs: 1 } as never),
      () => values.delete('a', { if: 1 } as never),
      () => values.getOrLoad('a', () => 1, { waitFor: '1s' } as never),
      () => values.getOrLoad('a', 1 as never),
      () => values.getMany('a' as never),
    ])
      await expect(call()).rejects.toMatchObject({ name: 'InvalidOptions' })
  })
})

describe('a server that is away', () => {
  test('is StoreUnavailable, or what the caller would rather have; it is reported once, and its return', async () => {
    const under = await mongoUnderTest()
    const lines: string[] = []
    const logger = loggerOf((level, message) => void lines.push(`${level}: ${message}`))
    const values = under.open({ logger }).of<number>('away', { ttl: '1h' })
    await values.set('a', 1)
    await values.getOrLoad('a', () => 2, { staleFor: '1h' })
    await under.db.client.close()
    for (const call of [
      () => values.get('a'),
      () => values.getMany(['a']),
      () => values.entry('a'),
      () => values.set('a', 2),
      () => values.delete('a'),
      () => values.compareAndSet('a', null, 2),
      () => values.update('a', () => 2),
      () => values.getOrLoad('a', () => 2),
    ])
      await expect(call()).rejects.toMatchObject({ name: 'StoreUnavailable', store: 'mongodb' })
    expect(await values.get('a', { otherwise: 7 })).toBe(7)
    expect(await values.get('a', { otherwise: undefined })).toBeUndefined()
    expect(await values.getMany(['a'], { otherwise: new Map() })).toEqual(new Map())
    expect(lines).toEqual([
      expect.stringMatching(/^warn: the shared state is away: expected the mongodb store to get 'away:default:a'/),
    ])
    expect(await values.getOrLoad('a', () => 2, { staleFor: '1h' })).toBe(1)
    expect(lines).toHaveLength(2)
    await under.db.client.connect()
    expect(await values.get('a')).toBe(1)
    expect(lines.slice(2)).toEqual(['info: the shared state (mongodb) is back'])
    await under.close()
  })
})

test('the error of an outage has no arguments of the command, which are values', async () => {
  const message = "ERR unknown command 'SET', with args beginning with: 'k' 's3cret'"
  const error = Object.assign(new Error(message), {
    name: 'ReplyError',
    command: { name: 'set', args: ['k', 's3cret'] },
  })
  const failed = await new Guard('redis', silentLogger)
    .ask(
      () => "set 'k'",
      () => Promise.reject(error),
    )
    .catch((reason: Error) => reason)
  expect(failed).toMatchObject({ name: 'StoreUnavailable', cause: { name: 'ReplyError' } })
  expect(inspect(failed, { depth: 9, showHidden: true })).not.toContain('s3cret')
})

test('the environment is that of PHASELOCK_ENVIRONMENT, as for logins and configurations', () => {
  const environmentIn = (env: Record<string, string>) => new SharedStore({ env }).of('x').environment
  expect([environmentIn({ PHASELOCK_ENVIRONMENT: 'staging' }), environmentIn({})]).toEqual(['staging', 'default'])
  expect(() => environmentIn({ PHASELOCK_ENVIRONMENT: 'a:b' })).toThrow('environment: expected 1 to 64 letters')
})

describe('what has expired', () => {
  const database = useDatabase()

  test('is removed in MongoDB by one process of all, as a duty that status shows; with the old locks of keys', async () => {
    const { db } = database
    const stores = [new SharedStore({ client: db }), new SharedStore({ client: db })]
    const values = stores[0]!.of<number>('x', { ttl: '1h' })
    await Promise.all(Array.from({ length: 30 }, (_, i) => values.set(`a${i}`, i)))
    await values.getOrLoad('loaded', () => 1)
    await mongoLockProvider(db).lock({ name: 'of-an-app', lockAtMostFor: '1m' })
    const old = { $set: { lockUntil: new Date(Date.now() - 2 * 86_400_000) } }
    await db.collection('shedLock').updateMany({}, old)
    await values.getOrLoad('loaded-now', () => 1)
    const documents = db.collection<{ _id: string }>('phaselock.state')
    await documents.updateMany({ _id: /^x:default:a[12]/ }, { $set: { expiresAt: new Date(0) } })
    const expired = stores.map((store) => (store as unknown as { expired: { once(): Promise<void> } }).expired)
    await Promise.all(expired.map((one) => one.once()))
    expect(await documents.countDocuments()).toBe(32 - 22)
    expect((await db.collection('shedLock').distinct('_id')).sort()).toEqual([
      'of-an-app',
      'phaselock-state:x:default:loaded-now',
    ])
    const duties = await db.collection('phaselock.duties').find().toArray()
    expect(duties).toMatchObject([
      { _id: 'expired values in phaselock.state', everyMs: 600_000, error: null, found: { removed: 22 } },
    ])
    await Promise.all(stores.map((store) => store.close()))
  })

  test('doDuty: one of many does it in the interval; a failure is stored with it, and thrown', async () => {
    const { db } = database
    let done = 0
    const run = async () => ({ done: ++done })
    const all = await Promise.all(Array.from({ length: 5 }, () => doDuty(db, { name: 'mine', every: '1h', run })))
    expect(all.filter((one) => one !== undefined)).toEqual([{ done: 1 }])
    await db.collection('phaselock.duties').updateOne({}, [{ $set: { begunAt: new Date(0) } }])
    const fails = () => Promise.reject(new Error('no right'))
    await expect(doDuty(db, { name: 'mine', every: '1h', run: fails })).rejects.toThrow('no right')
    expect(await db.collection('phaselock.duties').findOne()).toMatchObject({ error: 'no right', found: { done: 1 } })
    await expect(doDuty(db, { name: 'mine', every: '1ms', run } as never)).rejects.toThrow(/every/)
  })

  test('doDuty: an end that can’t be stored is the driver’s error, never the duty’s; an error of the duty comes first', async () => {
    const duties = database.db.collection<{ _id: string }>('phaselock.duties')
    /** From now on another duty's value can't be stored a second time. */
    const refuse = async (field: string, value: unknown) => {
      await duties.insertOne({ _id: field, [field]: value } as never)
      await duties.createIndex({ [field]: 1 }, { unique: true })
    }
    const succeeds = async () => {
      await refuse('found', { done: 1 })
      return { done: 1 }
    }
    await expect(doDuty(database.db, { name: 'mine', every: '1h', run: succeeds })).rejects.toThrow(/E11000/)
    expect(await duties.findOne({ _id: 'mine' })).toMatchObject({ tookMs: null })

    await duties.drop()
    const fails = async () => {
      await refuse('error', 'no right')
      throw new Error('no right')
    }
    await expect(doDuty(database.db, { name: 'mine', every: '1h', run: fails })).rejects.toThrow(/^no right$/)
    expect(await duties.findOne({ _id: 'mine' })).toMatchObject({ tookMs: null })
  })

  test('no process takes part, or listens, before it has something to do with it', async () => {
    const store = new SharedStore({ client: database.db })
    const { hearing } = (store as unknown as { parts: { hearing: { listening: unknown } } }).parts
    await store.of('x').get('a')
    expect((store as unknown as { expired: { isStarted: boolean } }).expired.isStarted).toBe(false)
    await store.of('x').set('a', 1)
    expect(hearing.listening).toBeUndefined()
    expect(await database.db.listCollections().toArray()).toMatchObject([{ name: 'phaselock.state' }])
    store.of('y', { layer: true })
    await eventually(async () => (await database.db.listCollections().toArray()).length === 2)
    await store.close()
  })
})
