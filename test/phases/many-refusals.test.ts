import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { type BrokenDocument, Replica, type ReplicaOptions, silentLogger } from '../../src/index.js'
import { systemClock } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

const BAD = 1_500
const GOOD = 100

describe('any number of documents that refuse writes', () => {
  const database = useDatabase()
  const created = () => things(database.db).countDocuments({ phase: 'Created' })

  function replica(more: Partial<ReplicaOptions> = {}, settings: object = {}) {
    const broken: BrokenDocument[] = []
    const observer = { ...recordingObserver(), broken: (event: BrokenDocument) => void broken.push(event) }
    const one = replicaOf(
      more.db ?? database.db,
      thingWith(async (_doc, step) => step.moveTo('Created'), thingOf(settings)),
      { observer, ...more },
    )
    return { one, broken, observer }
  }

  /** The validator came later than the documents. */
  async function putBad(count: number, more: object = {}): Promise<void> {
    const bad = Array.from({ length: count }, (_, i) => ({ _id: `bad-${i}`, phase: 'Creating', strict: true, ...more }))
    await things(database.db).insertMany(bad as never, { bypassDocumentValidation: true })
  }

  const putGood = (count: number) =>
    things(database.db).insertMany(
      Array.from({ length: count }, (_, i) => ({ _id: `good-${i}`, phase: 'Creating' })) as never,
    )

  const strictly = (condition: object) => ({ validator: { $or: [{ strict: { $exists: false } }, condition] } })
  const notClaimed = strictly({ lockedBy: { $exists: false } })

  async function tick(one: Replica): Promise<void> {
    await one.tick()
    await one.idle()
  }

  async function seconds(work: () => Promise<unknown>): Promise<number> {
    const from = systemClock.monotonicMs()
    await work()
    return (systemClock.monotonicMs() - from) / 1_000
  }

  test.each([
    ['one replica', 1, {}],
    ['two replicas', 2, {}],
    ['one replica, four at once', 1, { concurrency: 4 }],
  ])(
    '1,500 in front of 100 good ones, %s: all good ones in the first tick, each culprit told',
    async (_name, of, settings) => {
      await database.db.createCollection('Thing', notClaimed)
      await putBad(BAD)
      await putGood(GOOD)
      const replicas = Array.from({ length: of }, () => replica({}, settings))
      await Promise.all(replicas.map(({ one }) => one.prepare()))
      const took = await seconds(() => Promise.all(replicas.map(({ one }) => tick(one))))
      expect(await created()).toBe(GOOD)
      const told = new Set(replicas.flatMap(({ broken }) => broken.map(({ id }) => id)))
      expect(told.size).toBe(BAD)
      expect(took).toBeLessThan(60) // alone on its machine: 2 s
      // From now on they are passed over.
      await things(database.db).insertOne({ _id: 'late', phase: 'Creating' })
      expect(await seconds(() => Promise.all(replicas.map(({ one }) => tick(one))))).toBeLessThan(20)
      expect(await created()).toBe(GOOD + 1)
    },
  )

  test('those behind any number of them wait for a claim or two, not for all', async () => {
    await database.db.createCollection('Thing', notClaimed)
    await putBad(4_000)
    await putGood(GOOD)
    let refused = 0
    const toldBefore: number[] = []
    const observer = {
      ...recordingObserver(),
      broken: () => {
        refused += 1
      },
    }
    const handlers = thingWith(async (_doc, step) => {
      toldBefore.push(refused)
      return step.moveTo('Created')
    })
    const one = replicaOf(database.db, handlers, { observer })
    await tick(one)
    expect(toldBefore).toHaveLength(GOOD)
    expect(Math.max(...toldBefore)).toBeLessThan(1_500)
  })

  test("1,500 that refuse a state rule, in front of 100 that don't", async () => {
    await database.db.createCollection('Thing', strictly({ phase: { $ne: 'Deleting' } }))
    const wants = { phase: 'Created', state: 'Deleted' }
    await putBad(1_500, wants)
    const good = Array.from({ length: GOOD }, (_, i) => ({ _id: `good-${i}`, ...wants }))
    await things(database.db).insertMany(good as never)
    const { one } = replica(
      {},
      {
        phases: {
          Creating: { next: ['Created', 'Deleting'] },
          Created: { rest: true },
          Deleting: { next: ['Deleted'] },
          Deleted: { final: true, keepFor: '1h' },
        },
      },
    )
    await one.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Deleted' })).toBe(GOOD)
  })

  test('5,000 that refuse a state rule keep a tick for a second or two, and its other lifecycles for no longer', async () => {
    await database.db.createCollection('Thing', strictly({ phase: { $ne: 'Deleting' } }))
    await putBad(5_000, { phase: 'Created', state: 'Deleted' })
    const broken: unknown[] = []
    const other = thingWith(
      async (_doc, step) => step.moveTo('Created'),
      thingOf({ name: 'other', collection: 'Other' }),
    )
    const one = new Replica({
      ...{ db: database.db, lifecycles: [thingWith(async (_doc, step) => step.moveTo('Created')), other] },
      ...{ observer: { broken: ({ id }) => void broken.push(id) }, logger: silentLogger },
    })
    await database.db.collection('Other').insertOne({ phase: 'Creating' })
    await one.tick()
    expect(broken.length).toBeLessThan(5_000)
    await one.idle()
    await one.stop()
    expect(await database.db.collection('Other').countDocuments({ phase: 'Created' })).toBe(1)
  })

  test("1,500 that refuse to be armed for their removal, in front of 100 that don't", async () => {
    await database.db.createCollection('Thing', strictly({ 'progress.since': { $exists: false } }))
    await putBad(1_500, { phase: 'Deleted' })
    const good = Array.from({ length: GOOD }, (_, i) => ({ _id: `good-${i}`, phase: 'Deleted' }))
    await things(database.db).insertMany(good as never)
    const { one } = replica(
      {},
      {
        phases: {
          Creating: { next: ['Created', 'Deleting'] },
          Created: { rest: true },
          Deleting: { next: ['Deleted'] },
          Deleted: { final: true, keepFor: '1h' },
        },
      },
    )
    await one.runOnce()
    expect(await things(database.db).countDocuments({ 'progress.resumeAt': { $exists: true } })).toBe(GOOD)
  })

  test('20 _ids of 1 MB, and one of 5 MB that is told, in front of 100 good ones', async () => {
    const wide = (letter: number, size: number) => String.fromCharCode(97 + letter).repeat(size)
    for (let i = 0; i < 20; i += 1) await things(database.db).insertOne({ _id: wide(i, 1_000_000), phase: 'Creating' })
    await things(database.db).insertOne({ _id: wide(20, 5_000_000), phase: 'Creating' })
    await putGood(GOOD)
    const { one, broken, observer } = replica()
    await one.runOnce()
    expect(await created()).toBe(GOOD + 20)
    expect(broken.map(({ id, reason, fate }) => [String(id).length, reason, fate])).toEqual([
      [5_000_000, 'tooLarge', 'skipped'],
    ])
    expect(observer.losses).toEqual([])
  })

  describe('through a proxy', () => {
    let proxy: TcpProxy
    let client: MongoClient
    beforeEach(async () => {
      proxy = await TcpProxy.start(database.uri)
      client = await new MongoClient(proxy.uri).connect()
    })
    afterEach(async () => {
      await client.close()
      await proxy.stop()
    })
    const through = () => replica({ db: client.db(database.db.databaseName) })

    async function ticks(one: Replica, count: number): Promise<void> {
      for (let tick = 0; tick < count; tick += 1) {
        await one.tick()
        await one.idle()
      }
    }

    test('a server that is too slow for more than three of its documents: claims shrink until they come in time', async () => {
      await putGood(24)
      const { one, observer } = through()
      await one.prepare()
      proxy.answerAll(({ name, body }) => {
        const filter: Document =
          (name === 'update' ? body['updates'][0].q : name === 'find' ? body['filter'] : {}) ?? {}
        const isOfClaim = name === 'update' ? filter['phase'] !== undefined : filter['lockedBy'] !== undefined
        return isOfClaim && (filter['_id']?.$in?.length ?? 0) > 3 ? TOO_SLOW : undefined
      })
      await ticks(one, 6)
      expect(await created()).toBe(24)
      expect(observer.losses).toEqual([])
    })

    test('what was claimed is read in smaller parts when it is too much for one answer', async () => {
      await putGood(24)
      const { one, observer } = through()
      await one.prepare()
      proxy.answerAll(({ name, body }) =>
        name === 'find' && body['filter'].lockedBy && body['filter']._id?.$in?.length > 3 ? TOO_SLOW : undefined,
      )
      await ticks(one, 1)
      expect(await created()).toBe(24)
      expect(observer.losses).toEqual([])
    })

    test('a phase whose claims always fail stops none of the others', async () => {
      await putGood(30)
      const deleting = Array.from({ length: 30 }, (_, i) => ({ _id: `deleting-${i}`, phase: 'Deleting' }))
      await things(database.db).insertMany(deleting)
      const { one } = through()
      await one.prepare()
      proxy.answerAll(({ name, body }) =>
        name === 'update' && body['updates'][0].q.phase === 'Creating' ? TOO_SLOW : undefined,
      )
      await ticks(one, 3)
      expect(await things(database.db).countDocuments({ phase: 'Deleting' })).toBe(0)
      expect(await things(database.db).countDocuments({ phase: 'Creating' })).toBe(30)
    })
  })
})

const TOO_SLOW = { ok: 0, code: 50, codeName: 'MaxTimeMSExpired', errmsg: 'operation exceeded time limit' }
