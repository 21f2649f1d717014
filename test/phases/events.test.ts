import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { type Db, MongoServerError } from 'mongodb'
import {
  Events,
  InvalidOptions,
  lifecycleOf,
  Replica,
  type ReplicaOptions,
  type StepEnded,
  silentLogger,
} from '../../src/index.js'
import { EVENTS_COLLECTION, EventWriter, forgetEvents, isSampled } from '../../src/phases/events/events.js'
import type { EventsLost } from '../../src/phases/reporting/observer.js'
import { useDatabase } from '../support/database.js'

jest.setTimeout(60_000)

interface Loop {
  _id: string
  n?: number
  fails?: boolean
}
const loopOf = (events?: unknown) =>
  lifecycleOf<Loop>().define({
    name: 'loop',
    collection: 'Loop',
    phases: { Turning: { next: ['Done'] }, Done: { rest: true } },
    ...(events !== undefined && { events: events as 'full' }),
  })

describe('events', () => {
  const database = useDatabase()
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
    lost.splice(0)
    counted.splice(0)
  })
  const lost: EventsLost[] = []
  const counted: number[] = []

  async function turned(events: unknown, ids: string[], options: Partial<ReplicaOptions> = {}, steps = 30) {
    const loops = loopOf(events).handle({
      async Turning(doc, step) {
        if (doc.fails) return step.park('broken')
        return (doc.n ?? 0) + 1 < steps ? step.again({ set: { n: (doc.n ?? 0) + 1 } }) : step.moveTo('Done')
      },
    })
    const observer = { eventsLost: (one: EventsLost) => void lost.push(one) }
    const replica = new Replica({ db: database.db, lifecycles: [loops], logger: silentLogger, observer, ...options })
    replicas.push(replica)
    await replica.prepare()
    const collection = database.db.collection<Loop & { phase: string }>('Loop')
    await collection.insertMany(ids.map((_id) => ({ _id, phase: 'Turning', fails: _id.startsWith('fails') })))
    await replica.runOnce()
    return replica
  }
  const stored = (db: Db = database.db) => db.collection(EVENTS_COLLECTION)

  test('full: each end of a step is kept, beyond the newest 20, under the token that its history names', async () => {
    const { identity } = await turned('full', ['a', 'b'])
    const events = await new Events(database.db).list({ documents: ['a'], limit: 100 })
    expect(events).toHaveLength(30)
    expect(events[0]).toMatchObject({
      ...{ lifecycle: 'loop', document: 'a', from: 'Turning', to: 'Done', step: null, outcome: 'moveTo', reason: null },
      replica: identity,
    })
    expect(new Set(events.map(({ by }) => by)).size).toBe(30)
    const { progress } = (await database.db.collection('Loop').findOne({ _id: 'a' as never }))!
    expect(progress.history.at(-1).by).toBe(events[0]!.by)
    const [one] = await stored().find().limit(1).toArray()
    expect(one!['expiresAt'].getTime() - one!['at'].getTime()).toBe(7 * 86_400_000)
    const indexes = await stored().indexes()
    expect(indexes.find(({ expireAfterSeconds }) => expireAfterSeconds === 0)?.key).toEqual({ expiresAt: 1 })
    expect(lost).toEqual([])
  })

  test('are found by lifecycle, replica, time and outcome, the newest first', async () => {
    const first = await turned('full', ['a'], {}, 2)
    const between = new Date()
    await turned('full', ['fails'], {}, 2)
    const events = new Events(database.db)
    const all = await events.list()
    expect(all.map(({ outcome }) => outcome)).toEqual(['park', 'moveTo', 'again'])
    expect(await events.list({ lifecycle: 'loop', limit: 1 })).toEqual(all.slice(0, 1))
    expect(await events.list({ replica: first.identity })).toEqual(all.slice(1))
    expect(await events.list({ outcome: 'park' })).toEqual(all.slice(0, 1))
    expect(await events.list({ since: between })).toEqual(all.slice(0, 1))
    expect(await events.list({ until: between })).toEqual(all.slice(1))
    expect(await events.list({ lifecycle: 'other' })).toEqual([])
    await expect(events.list({ limit: 0 })).rejects.toThrow(InvalidOptions)
    await expect(events.list({ documents: 'a' as never })).rejects.toThrow("expected a list of _id's")
    expect(() => new Events({} as never)).toThrow(InvalidOptions)
  })

  test('sampled: all of one document in a hundred, and parks of every one', async () => {
    const ids = Array.from({ length: 300 }, (_, i) => `job-${i}`)
    const chosen = ids.filter(isSampled)
    expect(chosen.length).toBeGreaterThan(0)
    expect(chosen.length).toBeLessThan(15)
    await turned({ keep: 'sampled', for: '1d' }, [...ids, 'fails-1', 'fails-2'], {}, 3)
    const found = await new Events(database.db).list({ limit: 10_000 })
    const of = (id: string) => found.filter(({ document }) => document === id)
    for (const id of chosen) expect(of(id)).toHaveLength(3)
    expect(found).toHaveLength(chosen.length * 3 + 2)
    expect(of('fails-1').map(({ outcome, reason }) => `${outcome} ${reason}`)).toEqual(['park broken'])
  })

  test.each([[undefined], ['off'], [{ keep: 'off' }]])('%j: nothing is kept, and nothing sent', async (events) => {
    await turned(events, ['a'])
    expect(await database.db.listCollections({ name: EVENTS_COLLECTION }).toArray()).toEqual([])
  })

  test('what ends together is written together, and no step waits for it', async () => {
    const groups: number[] = []
    const open = Promise.withResolvers<void>()
    const real = stored()
    const slow = new Proxy(real, {
      get(target, name) {
        if (name !== 'insertMany') return Reflect.get(target, name).bind(target)
        return async (group: object[], options: object) => {
          groups.push(group.length)
          await open.promise
          return target.insertMany(group as never, options)
        }
      },
    })
    const db = { collection: () => slow } as unknown as Db
    const writer = writerOn(db)
    for (let i = 0; i < 11_500; i += 1) writer.ended(told(i), 't')
    open.resolve()
    await writer.settled()
    expect(groups[0]).toBeLessThanOrEqual(1_000)
    expect(Math.max(...groups)).toBe(1_000)
    // More than 10,000 can't wait: what doesn't fit is counted.
    expect((await real.countDocuments()) + counted.reduce((sum, one) => sum + one, 0)).toBe(11_500)
    expect(counted.length).toBeGreaterThan(0)
  })

  test('a command that fails is sent again, and nothing is there twice', async () => {
    const real = stored()
    let failures = 1
    const flaky = new Proxy(real, {
      get(target, name) {
        if (name !== 'insertMany') return Reflect.get(target, name).bind(target)
        return async (group: object[], options: object) => {
          const done = await target.insertMany(group as never, options)
          if (failures-- > 0)
            throw Object.assign(new Error('connection 3 to 127.0.0.1 closed'), { name: 'MongoNetworkError' })
          return done
        }
      },
    })
    const writer = writerOn({ collection: () => flaky } as unknown as Db)
    for (let i = 0; i < 10; i += 1) writer.ended(told(i), 't')
    await writer.settled()
    await writer.settled()
    expect(await real.countDocuments()).toBe(10)
    expect(counted).toEqual([])
  })

  test('indexes that could not be made are tried again with the next group', async () => {
    const real = stored()
    let failures = 1
    const flaky = new Proxy(real, {
      get(target, name) {
        if (name !== 'createIndexes' || failures-- <= 0) return Reflect.get(target, name).bind(target)
        return () => Promise.reject(new MongoServerError({ message: 'out of disk space', code: 14_031 }))
      },
    })
    const writer = writerOn({ collection: () => flaky } as unknown as Db)
    writer.ended(told(1), 't')
    await writer.settled()
    expect(counted).toEqual([1])
    writer.ended(told(2), 't')
    await writer.settled()
    expect(await real.countDocuments()).toBe(1)
    expect(await real.indexes()).toHaveLength(5)
  })

  test('while commands fail each is sent in its time, however many are kept', async () => {
    let sent = 0
    const failing = new Proxy(stored(), {
      get(target, name) {
        if (name !== 'insertMany') return Reflect.get(target, name).bind(target)
        return () => {
          sent += 1
          return Promise.reject(new Error('no connection'))
        }
      },
    })
    const writer = writerOn({ collection: () => failing } as unknown as Db)
    for (let i = 0; i < 1_000; i += 1) writer.ended(told(i), 't')
    await writer.settled()
    for (let i = 0; i < 100; i += 1) {
      writer.ended(told(i), 't')
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(sent).toBe(1)
    await writer.stop(() => Promise.resolve(), 0)
  })

  test('the oldest are removed when a lifecycle has more than it keeps', async () => {
    const at = (i: number) => new Date(Date.UTC(2026, 0, 1) + i)
    await stored().createIndex({ lifecycle: 1, at: -1 })
    await stored().insertMany(
      Array.from({ length: 50 }, (_, i) => ({ lifecycle: i % 5 === 0 ? 'other' : 'loop', at: at(i) })),
    )
    expect(await forgetEvents(database.db, 'loop', 30)).toBe(10)
    expect(await stored().countDocuments({ lifecycle: 'loop' })).toBe(30)
    expect(await stored().countDocuments({ lifecycle: 'other' })).toBe(10)
    expect(await forgetEvents(database.db, 'loop', 30)).toBe(0)
    expect((await stored().find({ lifecycle: 'loop' }).sort({ at: 1 }).limit(1).toArray())[0]!['at']).toEqual(at(13))
  })

  test.each([
    ['fully', /events: expected one of off, sampled, full, got 'fully'/],
    [{ keep: 'full', for: '1m' }, /for: expected a duration from 1h to 3650d/],
    [{ keep: 'full', many: 3 }, /many/],
    [{ keep: 'full', most: 10 }, /most: expected a whole number from 1000/],
  ])('refuses %j', (events, expected) => {
    expect(() => loopOf(events)).toThrow(expected)
  })

  const writerOn = (db: Db) =>
    new EventWriter({
      ...{ db, identity: 'r', keeps: { keep: 'full', forMs: 1_000_000, most: 1_000 }, serverNow: () => new Date() },
      onLost: (count) => void counted.push(count),
    })
  const told = (i: number): StepEnded =>
    ({
      ...{
        lifecycle: 'loop',
        phase: 'Turning',
        to: 'Turning',
        id: `d${i}`,
        step: null,
        outcome: 'again',
        reason: null,
      },
      ms: 1.5,
    }) as const
})
