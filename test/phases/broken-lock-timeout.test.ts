import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Db, Document, MongoClient } from 'mongodb'
import { brokenLockTimeout, changeLockTimeout, LIFECYCLES_COLLECTION, lockTimeoutAt } from '../../src/lock/index.js'
import { checkDatabase } from '../../src/operations/index.js'
import { clientAt } from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingLogger, replicaOf, ShiftedClock, thing, thingOf, things, thingWith } from '../support/thing.js'

/** What a person may write there, and what is said of it. */
const BROKEN: [string, unknown, RegExp][] = [
  ['a string', '45s', /got the string '45s'/],
  ['seconds', 500, /got 500/],
  ['negative', -30_000, /got -30000/],
  ['NaN', Number.NaN, /got NaN/],
  ['0', 0, /got 0/],
  ['a date', new Date(30_000), /got the date 1970/],
  ['a date out of range', new Date(8.64e15 + 1), /got /],
  ['1e12', 1e12, /got 1000000000000/],
  ['an array', [30_000], /got an array/],
  ['null', null, /got null/],
  ['missing', undefined, /got missing/],
]

describe('an entry in phaselock.lifecycles that a person has broken', () => {
  const database = useDatabase()
  let proxy: TcpProxy
  let client: MongoClient
  let db: Db
  let clock: ShiftedClock

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
    client = await clientAt(proxy.uri)
    db = client.db(database.db.databaseName)
    clock = new ShiftedClock()
  })
  afterEach(async () => {
    await client.close()
    await proxy.stop()
  })

  const timePasses = (ms: number) => {
    proxy.stepClock(ms)
    clock.advance(ms)
  }
  const entries = () => database.db.collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
  const handled = (lifecycle = thing) => thingWith(async (_doc, step) => step.moveTo('Created'), lifecycle)
  const edit = (fields: Document) => {
    const gone = Object.keys(fields).filter((name) => fields[name] === undefined)
    const set = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
    return entries().updateOne({ _id: 'thing' }, [
      { $set: { ...set, handled: 1 } },
      ...(gone.length > 0 ? [{ $unset: gone }] : []),
    ])
  }
  const phaseOf = async (id: string) => (await things(database.db).findOne({ _id: id }))?.['phase']
  const findings = async () => (await checkDatabase({ db, models: [thing.model] }))[0]!.findings

  test.each(BROKEN)('lockTimeout is %s: it is said, and all goes on with the last good one', async (_, value, said) => {
    const logger = recordingLogger()
    const replica = replicaOf(db, handled(), { logger, clock })
    await replica.runOnce()
    await edit({ lockTimeout: 45_000 })
    await replica.runOnce()
    expect(replica.terms(thing.model).lockTimeoutMs).toBe(45_000)

    await edit({ lockTimeout: value })
    for (const round of [1, 2, 3]) {
      timePasses(6_000)
      await things(database.db).insertOne({ _id: `a${round}`, phase: 'Creating' })
      await replica.runOnce()
      expect(await phaseOf(`a${round}`)).toBe('Created')
    }
    expect(replica.terms(thing.model)).toMatchObject({ lockTimeoutMs: 45_000, leaseMs: 45_000 })
    const problem = /^thing in phaselock.lifecycles: lockTimeout: expected milliseconds from 1000 to 86400000, got /
    expect(replica.status().notReady).toEqual([expect.stringMatching(problem)])
    expect(replica.status().notReady[0]).toMatch(said)
    const errors = logger.lines.filter(({ level }) => level === 'error')
    expect(errors.map(({ message }) => message)).toEqual([expect.stringMatching(said)])
    expect(errors[0]!.message).toMatch(
      /this replica keeps using 45 s; to fix it: phaselock set-lock-timeout thing 45s$/,
    )
    expect((await findings()).map((one) => one.problem)).toEqual([expect.stringMatching(/replicas keep to 45 s$/)])

    // One that starts now goes by the same, whatever its own setting is.
    const other = replicaOf(db, handled(thingOf({ lockTimeout: '10s' })), { clock })
    await other.runOnce()
    expect(other.terms(thing.model)).toMatchObject({ lockTimeoutMs: 45_000, leaseMs: 45_000 })

    expect(await changeLockTimeout(db, 'thing', 60_000)).toMatchObject({ kind: 'changed', wasMs: 45_000 })
    await replica.runOnce()
    expect(replica.terms(thing.model)).toMatchObject({ lockTimeoutMs: 60_000, leaseMs: 45_000 })
    expect(replica.status().notReady).toEqual([])
    expect(await findings()).toEqual([])
  })

  test('where none was good yet the first replica says by what all go', async () => {
    const [first, second] = ['20s', '10s'].map((lockTimeout) =>
      replicaOf(db, handled(thingOf({ lockTimeout })), { clock }),
    )
    await entries().insertOne({ _id: 'thing', collection: 'Thing', lockTimeout: '45s' })
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await first!.runOnce()
    await second!.runOnce()
    expect(await phaseOf('a')).toBe('Created')
    for (const replica of [first!, second!]) expect(replica.terms(thing.model).lockTimeoutMs).toBe(20_000)
  })

  test('broken again, it is what was in force last that counts, not what stood in the first time', async () => {
    const replica = replicaOf(db, handled(), { clock })
    await replica.runOnce()
    for (const lockTimeout of ['45s', 50_000, '45s']) {
      await edit({ lockTimeout })
      await replica.runOnce()
    }
    expect(replica.terms(thing.model).lockTimeoutMs).toBe(50_000)
    expect(await entries().findOne({ _id: 'thing' })).toMatchObject({ lockTimeout: '45s', lockTimeoutInstead: 50_000 })
  })

  test.each([
    ['the value before', { lockTimeoutWas: '60s' }, /lockTimeoutWas: .*got the string '60s'/],
    ['NaN for the value before', { lockTimeoutWas: Number.NaN }, /lockTimeoutWas: .*got NaN/],
    ['when it was announced', { lockTimeoutSince: 'now' }, /lockTimeoutSince: .*got the string 'now'/],
    ['a time far ahead', { lockTimeoutSince: new Date('9999-01-01') }, /lockTimeoutSince: .*got the date 9999/],
    ['no time', { lockTimeoutSince: undefined }, /lockTimeoutSince: .*got missing/],
  ])(
    'a change whose announcement is broken (%s): judged by the longer, believed in for the shorter',
    async (_, fields, said) => {
      const replica = replicaOf(db, handled(), { clock })
      await replica.runOnce()
      await changeLockTimeout(db, 'thing', 20_000)
      await replica.runOnce()
      await edit(fields)
      timePasses(6_000)
      await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
      await replica.runOnce()
      expect(await phaseOf('a')).toBe('Created')
      expect(replica.terms(thing.model)).toMatchObject({ lockTimeoutMs: 30_000, leaseMs: 20_000 })
      expect(replica.status().notReady).toEqual([expect.stringMatching(said)])
      expect((await findings()).map(({ problem }) => problem)).toEqual([expect.stringMatching(said)])
      expect(await changeLockTimeout(db, 'thing', 25_000)).toMatchObject({ kind: 'changed' })
      expect(await findings()).toEqual([])
    },
  )

  test('every numeric type that a shell may write is a lockTimeout', () => {
    const now = new Date()
    for (const lockTimeout of [1_000, 86_400_000, 45_000n, { _bsontype: 'Long', toString: () => '45000' }])
      expect(brokenLockTimeout({ lockTimeout }, now)).toBeUndefined()
    expect(lockTimeoutAt({ lockTimeout: 45_000n }, now)).toMatchObject({ dueMs: 45_000, leaseMs: 45_000 })
    expect(lockTimeoutAt({ lockTimeout: '45s' }, now)).toBeUndefined()
  })
})
