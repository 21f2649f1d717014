import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Limits, type Replica, type RunnableLifecycle } from '../../src/index.js'
import {
  HOLDERS_BEFORE,
  LIFECYCLES_COLLECTION,
  LIMITS_COLLECTION,
  pauseLimit,
  readLimits,
} from '../../src/lock/index.js'
import { checkDatabase } from '../../src/operations/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, recordingLogger, replicaOf, type Thing, thingOf, things, thingWith } from '../support/thing.js'

describe('a limit that code declares', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()
  const documents = () => database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)
  const insert = (...ids: string[]) => things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating' })))
  const created = () => things(database.db).countDocuments({ phase: 'Created' })
  const limited = (settings: object) => thingOf(settings)

  const working = (settings: object, creating: (doc: Thing) => Promise<unknown> = async () => undefined) =>
    thingWith(async (doc, step) => {
      await creating(doc)
      return step.moveTo('Created')
    }, limited(settings)) as RunnableLifecycle

  async function prepared(lifecycle: RunnableLifecycle) {
    const logger = recordingLogger()
    const replica = replicaOf(database.db, lifecycle, { logger })
    replicas.push(replica)
    await replica.prepare()
    return { replica, logger }
  }

  /** All who had slots before have asked again by then. */
  const backDateHolders = () =>
    documents().updateMany({}, [{ $set: { holders: { $filter: { input: '$holders', cond: IS_KNOWN } } } }])
  const IS_KNOWN = { $ne: ['$$this.by', HOLDERS_BEFORE] }

  test.each<[string, object, string]>([
    ['by its lifecycle', { limits: [{ name: 'api', slots: 2 }] }, 'api'],
    ['as maxActive', { maxActive: 2 }, 'thing (maxActive)'],
  ])('%s, is declared again when its document is gone', async (_what, settings, name) => {
    const { replica, logger } = await prepared(working(settings))
    await documents().deleteMany({})
    await insert('a', 'b', 'c')
    await replica.runOnce()
    const [limit] = (await readLimits(database.db)).limits
    expect(limit).toMatchObject({ name, slots: 2, holders: [{ by: HOLDERS_BEFORE, slots: 2 }] })
    // Long enough for each holder to ask again, which it does after a third of its lease.
    const leftMs = limit!.holders[0]!.until.getTime() - Date.now()
    expect(leftMs).toBeLessThanOrEqual(15_000)
    await backDateHolders()
    await replica.runOnce()
    expect(await created()).toBe(3)
    expect(logger.lines.filter(({ message }) => message.includes('limits set'))).toEqual([])
  })

  test('is never exceeded by that: what has slots keeps them', async () => {
    const end = gate()
    const seen = { now: 0, most: 0 }
    const lifecycle = working({ limits: [{ name: 'api', slots: 2 }] }, async () => {
      seen.now += 1
      seen.most = Math.max(seen.most, seen.now)
      await end.wait
      seen.now -= 1
    })
    const [{ replica }, { replica: other }] = [await prepared(lifecycle), await prepared(lifecycle)]
    await insert('a', 'b')
    await replica.tick()
    await eventually(() => expect(seen.now).toBe(2))
    await documents().deleteMany({})
    await insert('c', 'd')
    await other.runOnce()
    await replica.tick()
    expect(seen).toEqual({ now: 2, most: 2 })
    // Its holder asks again.
    await eventually(async () => {
      await replica.tick()
      const { holders } = (await readLimits(database.db)).limits[0]!
      expect(holders).toContainEqual(expect.objectContaining({ by: replica.identity, slots: 2 }))
    })
    await backDateHolders()
    await other.runOnce()
    expect(seen.most).toBe(2)
    end.open()
    await eventually(async () => {
      await Promise.all([replica.tick(), other.tick()])
      expect(await created()).toBe(4)
    })
    expect(seen.most).toBe(2)
  })

  test('is never exceeded by a replica that starts after its document was deleted', async () => {
    const end = gate()
    const seen = { now: 0, most: 0 }
    const lifecycle = working({ limits: [{ name: 'api', slots: 2 }] }, async () => {
      seen.now += 1
      seen.most = Math.max(seen.most, seen.now)
      await end.wait
      seen.now -= 1
    })
    const { replica } = await prepared(lifecycle)
    expect(await documents().findOne({ _id: 'api' })).toEqual({ _id: 'api', declared: 2 })
    await insert('a', 'b')
    await replica.tick()
    await eventually(() => expect(seen.now).toBe(2))
    await documents().deleteMany({})
    await insert('c', 'd')
    // It starts, and is the first to need slots.
    const { replica: other } = await prepared(lifecycle)
    const { holders } = (await readLimits(database.db)).limits[0]!
    expect(holders).toContainEqual(expect.objectContaining({ by: HOLDERS_BEFORE, slots: 2 }))
    await other.tick()
    await other.tick()
    expect(seen).toEqual({ now: 2, most: 2 })
    end.open()
    await backDateHolders()
    await eventually(async () => {
      await Promise.all([replica.tick(), other.tick()])
      expect(await created()).toBe(4)
    })
  })

  test('is new where no other lifecycle declares it, at once; where one does, it may be in use', async () => {
    const limits = [{ name: 'api', slots: 2 }]
    const declare = async (name: string, more: object) => {
      const replica = replicaOf(database.db, working({ name, collection: name, ...more }), {
        logger: recordingLogger(),
      })
      replicas.push(replica)
      await replica.prepare()
      return (await documents().findOne({ _id: 'api' }))?.['holders']
    }
    await declare('other', { limits: ['printer'] })
    expect(await declare('first', { limits })).toBeUndefined()
    await documents().deleteMany({})
    expect(await declare('second', { limits })).toMatchObject([{ by: HOLDERS_BEFORE, slots: 2, ms: 15_000 }])
    // Which a replica that starts later leaves as it is.
    expect(await declare('third', { limits })).toMatchObject([{ by: HOLDERS_BEFORE, slots: 2, ms: 15_000 }])
  })

  test('is there again at once after a person has removed it', async () => {
    const { replica } = await prepared(working({ limits: [{ name: 'api', slots: 2 }] }))
    await new Limits(database.db).set('api', { slots: 0, rate: '1/1h' })
    expect(await new Limits(database.db).remove('api')).toBe(true)
    expect(await new Limits(database.db).remove('api')).toBe(false)
    expect(await new Limits(database.db).list()).toEqual([])
    await insert('a', 'b', 'c')
    await replica.runOnce()
    expect(await created()).toBe(3)
    expect(await new Limits(database.db).list()).toMatchObject([{ name: 'api', slots: 2, rate: null }])
  })

  test.each([[{ $unset: { declared: '' } }], [{ $set: { declared: 'two' } }], [{ $set: { declared: null } }]])(
    'is declared again where a person has damaged that: %j',
    async (update) => {
      const { replica } = await prepared(working({ limits: [{ name: 'api', slots: 2 }] }))
      await insert('a')
      await replica.runOnce()
      await documents().updateOne({ _id: 'api' }, update)
      await insert('b')
      await replica.runOnce()
      expect(await created()).toBe(2)
      expect(await documents().findOne({ _id: 'api' })).toMatchObject({ declared: 2 })
    },
  )

  test('is declared again by check --repair; one that nobody declares is told', async () => {
    const { model } = limited({ limits: [{ name: 'api', slots: 2 }, 'printer'] })
    const check = async (repair = false) =>
      (await checkDatabase({ db: database.db, models: [model], repair })).flatMap(({ findings }) =>
        findings
          .filter(({ about }) => about.startsWith('limit'))
          .map((one) => `${one.about}: ${one.repair}: ${one.problem}`),
      )
    expect(await check()).toEqual([]) // no replica has run it yet
    await database.db
      .collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
      .insertOne({ _id: 'thing', collection: 'Thing' })
    const printer = "limit printer: none: it isn't in phaselock.limits, so documents of thing that need it wait"
    const api = "it isn't in phaselock.limits, though lifecycles declare 2 slots"
    expect(await check()).toEqual([`limit api: possible: ${api}`, printer])
    expect(await documents().countDocuments()).toBe(0)
    expect(await check(true)).toEqual([`limit api: done: ${api}`, printer])
    expect(await documents().find().toArray()).toEqual([{ _id: 'api', declared: 2 }])
    await documents().insertOne({ _id: 'printer', slots: 'two' })
    expect(await check()).toEqual([
      'limit printer: none: slots: expected a whole number from 0 to 1000000, got a string',
    ])
  })
})

describe('what is taken back of a limit', () => {
  const database = useDatabase()
  const taken = { slots: null, rate: null, holders: [], damaged: null }

  test.each([
    [{ rate: '5/1m' }, { rate: null }],
    [{ slots: 5 }, { slots: null }],
    [undefined, { rate: null }],
  ])('leaves one that limits nothing where nothing else is set: %j, %j', async (before, back) => {
    const limits = new Limits(database.db)
    if (before) await limits.set('api', before)
    expect(await limits.set('api', back)).toMatchObject(taken)
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created'), thingOf({ limits: ['api'] })),
    )
    await replica.prepare()
    await things(database.db).insertMany(Array.from({ length: 9 }, (_, i) => ({ _id: `${i}`, phase: 'Creating' })))
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(9)
    await limits.set('api', { slots: 0 })
    await things(database.db).insertOne({ _id: 'later', phase: 'Creating' })
    await replica.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(9)
    await replica.stop()
  })

  test('leaves what the other lifecycles declare, and what else is set', async () => {
    const limits = new Limits(database.db)
    await limits.set('api', { slots: 5, rate: '5/1m' })
    expect(await limits.set('api', { rate: null })).toMatchObject({ slots: 5, rate: null })
    await limits.set('pace', { slots: 5, rate: '5/1m' })
    expect(await limits.set('pace', { slots: null })).toMatchObject({ slots: null, rate: { starts: 5, perMs: 60_000 } })
  })

  test("of a value's pause leaves what its lifecycle declares", async () => {
    const pause = { by: 'ana', reason: null, end: null } as const
    await pauseLimit(database.db, 'thing tenant=a', pause, { slots: 3, rate: { starts: 5, perMs: 1_000 } })
    const { limits } = await readLimits(database.db)
    expect(limits).toMatchObject([{ slots: 3, rate: { starts: 5, perMs: 1_000 }, paused: { by: 'ana' } }])
  })
})
