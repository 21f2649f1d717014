import { describe, expect, test } from '@jest/globals'
import { type BSONSerializeOptions, type Db, type Document, Double, Int32, Long, MongoClient } from 'mongodb'
import { Audit, type BrokenDocument, Events, Limits, lifecycleOf, OwnerClient, Replica } from '../../src/index.js'
import { mongoLockProvider } from '../../src/locks/index.js'
import { countPhases, listDocuments, systemStatus } from '../../src/operations/index.js'
import { Operations, operationLifecycle } from '../../src/operations/public.js'
import { ownReads } from '../../src/options/index.js'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger } from '../support/thing.js'

interface Order {
  _id: string
  amount: unknown
  large: unknown
  state?: 'Deleted'
  fails?: boolean
}
interface Parcel {
  _id: string
  n: number
}

const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  events: { keep: 'full' },
  callbacks: ['onMoved'],
  phases: {
    Packing: { next: ['Sent'], limits: ['printer'] },
    Sent: { rest: true },
    Deleting: { next: ['Deleted'] },
    Deleted: { final: true, keepFor: '1h' },
  },
  rules: [{ when: 'Deleted', from: 'any', moveTo: 'Deleting' }],
})
const parcel = lifecycleOf<Parcel>().define({
  name: 'parcel',
  collection: 'Parcel',
  child: true,
  phases: { Packing: { next: ['Packed'] }, Packed: { rest: true } },
})

const LARGE = 9_007_199_254_740_993n

/** How a client may read, and what a handler then gets for an int64 of 7 and a larger one. */
const READINGS: readonly (readonly [BSONSerializeOptions, unknown, unknown])[] = [
  [{ promoteValues: false }, Long.fromNumber(7), Long.fromBigInt(LARGE)],
  [{ promoteLongs: false }, Long.fromNumber(7), Long.fromBigInt(LARGE)],
  [{ useBigInt64: true }, 7n, LARGE],
  [{ raw: true }, 7, Long.fromBigInt(LARGE)],
  [{ fieldsAsRaw: { progress: true, firstBatch: true } }, 7, Long.fromBigInt(LARGE)],
  [
    { promoteBuffers: true, bsonRegExp: true, ignoreUndefined: true, serializeFunctions: true },
    7,
    Long.fromBigInt(LARGE),
  ],
]

describe('a database that reads by options of its own', () => {
  const database = useDatabase()

  async function withDb<T>(options: BSONSerializeOptions, on: 'client' | 'database', work: (db: Db) => Promise<T>) {
    const client = await new MongoClient(database.uri, on === 'client' ? options : {}).connect()
    try {
      return await work(client.db(database.db.databaseName, on === 'database' ? options : {}))
    } finally {
      await client.close()
    }
  }

  async function life(db: Db) {
    const seen: Record<string, unknown>[] = []
    const told: unknown[] = []
    const broken: BrokenDocument[] = []
    const logger = recordingLogger()
    const orders = order.handle(
      {
        async Packing(doc, step) {
          const { fence, progress } = doc as Document
          seen.push({ amount: doc.amount, large: doc.large, fence, types: typesIn(progress), attempt: step.attempt })
          if (doc.fails) return step.wait('a printer', { for: '1h' })
          if (step.name === undefined) {
            await step.children([parcel.child('left', { n: 1 }), parcel.child('right', { n: 2 })])
            return step.again({ step: 'wait' })
          }
          const there = await step.waitFor(parcel.at(`order/${doc._id}/left`, 'Packed'))
          if (!there.done) return step.wait(there.text)
          const ended = await step.childrenDone({ rule: 'allSucceeded' })
          if (!ended.done) return step.wait(ended.text)
          const [left] = await step.childrenOf(parcel)
          return step.moveTo('Sent', { set: { amount: doc.amount, n: left!.n } } as never)
        },
        Deleting: async (_doc, step) => step.moveTo('Deleted'),
      },
      { onMoved: ({ document }) => void told.push(document.amount) },
    )
    const parcels = parcel.handle({ Packing: async (_doc, step) => step.moveTo('Packed') })
    const limits = new Limits(db)
    await limits.set('printer', { slots: 3, rate: '100/1s' })
    const lifecycles = [orders, parcels, operationLifecycle({ db })]
    const observer = { broken: (one: BrokenDocument) => void broken.push(one) }
    const replica = new Replica({ db, lifecycles, logger, observer })
    await replica.prepare()
    const owner = new OwnerClient<Order>(db, order.model, { doorbell: 'off' })
    const large = Long.fromBigInt(LARGE)
    await owner.insertMany([
      { _id: 'o', amount: Long.fromNumber(7), large },
      { _id: 'p', amount: Long.fromNumber(7), large, fails: true },
    ] as never)
    for (let round = 0; round < 4; round += 1) {
      await replica.runOnce()
      await backDate(database.db.collection('Order'), 60_000, { filter: { _id: 'o' as never } })
    }
    const found = (await owner.find('o')) as Document
    const system = { db: ownReads(db), models: [order.model, parcel.model] }
    const { documents } = await listDocuments(system, { lifecycle: 'order' })
    const counts = await countPhases(system, { fresh: true })
    const status = await systemStatus(system, { fresh: true })
    const operations = new Operations({ db, lifecycles: [order] })
    await operations.begin({ id: 'wake-1', action: 'wake', selection: { lifecycle: 'order', all: true }, by: 'ana' })
    await replica.runOnce()
    const operation = await operations.get('wake-1')
    const state = await owner.setState('o', 'Deleted', { audit: { by: 'ana' } })
    await replica.runOnce()
    const lock = await mongoLockProvider(db).lock({ name: 'nightly', lockAtMostFor: '1m' } as never)
    await replica.stop()
    return {
      seen: seen.map(({ amount, large, fence, types, attempt }) => [amount, large, typeof fence, types, attempt]),
      found: [found['amount'], typeof found['fence'], typesIn(found['progress'])],
      ...{ told, broken, lines: logger.lines.filter(({ level }) => level !== 'debug').map(({ message }) => message) },
      listed: documents.map(({ document, condition, why }) => [
        document['_id'],
        condition.kind,
        why?.replace(/, since .*/, ''),
      ]),
      counts: counts.map((one) => [one.phase, one.documents, one.due, one.held, one.sleeping]),
      status: status.lifecycles.map((one) => [one.lifecycle, one.documents, one.replicas]),
      operation: [operation?.condition, operation?.counts],
      state,
      lock: typeof (lock as Document | undefined)?.['fence'],
      slots: (await limits.list()).map(({ name, slots, rate }) => ({ name, slots, rate })),
      events: (await new Events(db).list()).map(({ document, outcome, ms }) => [document, outcome, typeof ms]).sort(),
      audit: (await new Audit(db).list()).map(({ document, action }) => [document, action]),
      stored: await database.db.collection('Order').distinct('phase'),
    }
  }

  let usual: Awaited<ReturnType<typeof life>>
  test('lets a document live, for comparison', async () => {
    usual = await withDb({}, 'client', life)
    expect(usual).toMatchObject({ broken: [], lines: [], state: 'done', stored: ['Deleted', 'Packing'] })
    expect(usual.found).toEqual([7, 'number', expect.anything()])
  })

  test.each([...READINGS.map((one) => ['client', ...one] as const), ['database', ...READINGS[2]!] as const])(
    'on a %s with %j a life is the same; its handlers read as it says',
    async (on, options, seven, large) => {
      const own = await withDb(options, on, life)
      const read = (value: unknown) => (value === 7 ? seven : large)
      expect(own).toEqual({
        ...usual,
        seen: usual.seen.map(([amount, big, ...rest]) => [read(amount), read(big), ...rest]),
        found: [read(usual.found[0]), ...usual.found.slice(1)],
        told: usual.told.map(read),
      })
    },
  )
})

test('a database with the defaults of the driver is used as it is', async () => {
  const client = new MongoClient('mongodb://127.0.0.1', { bsonRegExp: true, ignoreUndefined: true })
  const db = client.db('shop')
  expect(ownReads(db)).toBe(db)
  await client.close()
})

/** The types of the values in Phaselock's own fields. */
const typesIn = (value: unknown): unknown =>
  value instanceof Date || value === null || typeof value !== 'object'
    ? Object.prototype.toString.call(value)
    : value instanceof Int32 || value instanceof Double || Long.isLong(value) || Buffer.isBuffer(value)
      ? value.constructor.name
      : [...new Set(Object.values(value).map(typesIn).map(String))].sort()
