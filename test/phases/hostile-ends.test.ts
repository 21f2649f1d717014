import { describe, expect, test } from '@jest/globals'
import { BSON, type Db, type Document, Long, MongoClient } from 'mongodb'
import { Unavailable } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { recordingObserver, replicaOf, thingOf, thingSpec, things, thingWith } from '../support/thing.js'

/** Handlers may be JavaScript: nothing of what they are given or return is typed here. */
type AnyHandler = (doc: any, step: any) => unknown

const LONG_PAUSES = { firstError: '10m', longestError: '10m' }

/** What one document's end says must not reach those that are recorded together with it. */
describe('an end that no text can be made of, or one without an end', () => {
  const database = useDatabase()
  const read = async (id = 'a') => (await things(database.db).findOne({ _id: id })) as Document

  /** One document in front of good ones, all of them in one flush. */
  async function run(handler: AnyHandler, doc: object = {}, db: Db = database.db, settings: object = {}) {
    const observer = recordingObserver()
    const guarded: AnyHandler = (one, step) => (one._id === 'a' ? handler(one, step) : step.moveTo('Created'))
    const lifecycle = thingOf({ backOff: LONG_PAUSES, ...settings })
    const replica = replicaOf(db, thingWith(guarded as never, lifecycle), { observer, random: () => 0.5 })
    const good = Array.from({ length: 20 }, (_, n) => ({ _id: `good${n}`, phase: 'Creating' }))
    await things(database.db).insertMany([{ _id: 'a', phase: 'Creating', ...doc }, ...good] as never[])
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ _id: /^good/, phase: 'Created' } as never)).toBe(20)
    expect(observer.losses).toEqual([])
    return { found: await read(), steps: observer.steps.filter(({ id }) => id === 'a') }
  }

  const looped: Record<string, unknown> = { a: 1 }
  looped['self'] = looped

  const revoked = () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    return proxy
  }
  const hostile = () => ({
    toJSON: () => fail(),
    get [Symbol.toStringTag]() {
      return fail()
    },
  })
  const fail = (): never => {
    throw new Error('no text for you')
  }
  const unavailable = (reason: unknown, retryAfterMs?: unknown) =>
    Object.assign(new Unavailable(reason as string), { retryAfterMs })

  test.each<[string, () => unknown, object]>([
    ['a circular object', () => unavailable(looped), { waitingFor: '[object Object]' }],
    ['a bigint', () => unavailable(5n), { waitingFor: '5' }],
    ['a symbol', () => unavailable(Symbol('s')), { waitingFor: 'expected a reason, got Symbol(s)' }],
    ['an error', () => unavailable(new TypeError('fetch failed')), { waitingFor: 'TypeError: fetch failed' }],
    ['an object without a prototype', () => unavailable(Object.create(null)), { waitingFor: '{}' }],
    ['nothing', () => unavailable(undefined), { waitingFor: 'unavailable' }],
    ['10 MB', () => unavailable('r'.repeat(10_000_000)), { waitingFor: 'r'.repeat(1_000) }],
    ['a pause that is no number', () => unavailable('down', 'soon'), { waitingFor: 'down' }],
    ['a pause of NaN', () => unavailable('down', Number.NaN), { waitingFor: 'down' }],
    ['a pause without an end', () => unavailable('down', Number.POSITIVE_INFINITY), { waitingFor: 'down' }],
  ])(
    'throws Unavailable with %s: no attempt, it waits, and the others of its flush are recorded',
    async (_n, make, is) => {
      const { found, steps } = await run(async () => {
        throw make()
      })
      expect(found).toMatchObject({ phase: 'Creating', progress: { attempts: 0, claims: 0, ...is } })
      expect(found['progress'].resumeAt.getFullYear()).toBeLessThan(9999)
      expect(new Set(steps.map(({ outcome }) => outcome))).toEqual(new Set(['unavailable']))
    },
  )

  test.each<[string, AnyHandler, RegExp]>([
    ['throws a revoked proxy', () => Promise.reject(revoked()), /./],
    ['throws what has no text', () => Promise.reject(hostile()), /./],
    ['returns a revoked proxy', async () => ({ kind: revoked() }), /returned kind/],
    [
      'goes on with a bigint',
      async (_doc, step) => step.again({ step: 5n }),
      /^again: expected a step's name of at most 200/,
    ],
    [
      'goes on with a name of 201 characters',
      async (_doc, step) => step.again({ step: 'n'.repeat(201) }),
      /^again: expected a step's name of at most 200 characters, got one of 201: "nnn/,
    ],
    ['waits for a circular reason', async (_doc, step) => step.wait(looped), /^wait: expected a reason, got \[object/],
    ['moves to a circular phase', async (_doc, step) => step.moveTo(looped), /^moveTo\(\[object Object\]\)/],
    ['moves to a phase of 10 MB', async (_doc, step) => step.moveTo('x'.repeat(1e7)), /^moveTo\("x{199}\)/],
    ['returns 20 MB', async () => 'r'.repeat(20_000_000), /returned r{20,}.*; expected the result of step/],
    [
      'returns names of 20 MB',
      async () => ({ ['n'.repeat(20_000_000)]: 1 }),
      /returned an object with n{1000}; expected the result of step/,
    ],
    ['sets a list of bigints', async (_doc, step) => step.again({ set: [5n] }), /^set: expected an object/],
  ])('%s: an attempt that says so, the others of its flush are recorded', async (_name, handler, message) => {
    const { found } = await run(handler)
    expect(found).toMatchObject({ phase: 'Creating', progress: { attempts: 1, claims: 0 } })
    expect(found['progress'].error.message).toMatch(message)
    expect(BSON.calculateObjectSize(found)).toBeLessThan(20_000)
  })

  test('waits and parks with reasons of 10 MB: they are cut', async () => {
    const { found } = await run(async (_doc, step) => step.park('p'.repeat(10_000_000)))
    expect(found['progress'].error.message).toBe('p'.repeat(1_000))
    const waiting = 'w'.repeat(10_000_000)
    await things(database.db).deleteMany({})
    const again = await run(async (_doc, step) => step.wait(waiting), { progress: { step: 's'.repeat(100_000) } })
    expect(again.found['progress'].history[0]).toMatchObject({ step: 's'.repeat(200), reason: 'w'.repeat(1_000) })
  })

  describe('with a client that reads every int64 as a bigint', () => {
    const withBigints = async (work: (db: Db) => Promise<void>) => {
      const client = await new MongoClient(database.uri, { useBigInt64: true }).connect()
      try {
        await work(client.db(database.db.databaseName))
      } finally {
        await client.close()
      }
    }

    test('a deadline of a document whose state is an int64', () =>
      withBigints(async (db) => {
        const deadline = { after: '10m', moveTo: 'Deleting', setState: 'Deleted' }
        const phases = {
          ...thingSpec.phases,
          Creating: { next: ['Created', 'Deleting'], deadline },
          Deleted: { final: true, keepFor: '1h' },
        }
        const long = { state: Long.fromNumber(5), progress: { since: new Date(0) } }
        const { steps } = await run(async (_doc, step) => step.moveTo('Created'), long, db, { phases })
        expect(steps[0]).toMatchObject({ outcome: 'deadline', to: 'Deleting' })
        expect(await read()).toMatchObject({ state: 5 })
      }))

    test('attempts and claims that its owner wrote as int64s', () =>
      withBigints(async (db) => {
        const counts = { attempts: Long.fromNumber(3), claims: Long.fromNumber(4) }
        let attempt: unknown
        const { found } = await run(
          async (_doc, step) => {
            attempt = step.attempt
            throw new Error('no luck')
          },
          { progress: counts },
          db,
        )
        expect(attempt).toBe(4)
        expect(found['progress']).toMatchObject({ attempts: 4, claims: 0, error: { message: 'no luck' } })
      }))
  })
})
