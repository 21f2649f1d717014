import { beforeEach, describe, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { DOORBELL_COLLECTION } from '../../src/doorbell/index.js'
import { Ringer } from '../../src/doorbell/ringer.js'
import { lifecycleOf, OwnerClient } from '../../src/index.js'
import { OwnerRings } from '../../src/phases/owner/owner-rings.js'
import { insertRuns } from '../../src/schedules/insert-runs.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'

interface Order {
  _id: string
  state?: 'Wanted' | 'Cancelled'
}

const order = lifecycleOf<Order>().define({
  name: 'order',
  collection: 'Order',
  phases: {
    Taking: { next: ['Taken'], entry: true },
    Checking: { next: ['Taken'], entry: true },
    Taken: { rest: true, entry: true },
    Cancelling: { next: ['Gone'] },
    Gone: { final: true },
  },
  rules: [{ when: 'Cancelled', from: ['Taken'], moveTo: 'Cancelling' }],
})

const database = useDatabase()
const entries = () => database.db.collection(DOORBELL_COLLECTION)

/** What was rung, without who and when. */
async function rung(): Promise<Document[]> {
  return await entries()
    .find({ by: { $exists: true } }, { projection: { _id: 0, by: 0, at: 0 } })
    .toArray()
}

/** As a listener leaves it. */
async function somebodyListens(): Promise<void> {
  await database.db.createCollection(DOORBELL_COLLECTION, { capped: true, size: 65_536 })
  await entries().insertOne({ lifecycles: [] })
}

describe('an owner rings', () => {
  beforeEach(somebodyListens)
  const owner = () => new OwnerClient<Order>(database.db, order.model)

  test('once for a batch, with the phases in which something is due', async () => {
    const one = owner()
    await one.insertMany([{ _id: 'a' }, { _id: 'b', phase: 'Checking' }, { _id: 'c' }, { _id: 'd', phase: 'Taken' }])
    await one.flush()
    expect(await rung()).toEqual([{ lifecycles: ['order'], phases: ['Taking', 'Checking'] }])
    expect(await entries().findOne({ by: { $exists: true } })).toMatchObject({
      by: expect.any(String),
      at: expect.any(Date),
    })
  })

  test('by name for a few, and before the server has answered', async () => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await new MongoClient(proxy.uri, { serverSelectionTimeoutMS: 3_000 }).connect()
    try {
      const one = new OwnerClient<Order>(client.db(database.db.databaseName), order.model)
      const named = { lifecycles: ['order'], phases: ['Taking'], ids: ['a', 'b'] }
      const held = proxy.hold(({ name, body }) => name === 'insert' && body['insert'] === 'Order')
      const inserted = one.insertMany([{ _id: 'a' }, { _id: 'b' }])
      const insert = await held
      await eventually(async () => expect(await rung()).toEqual([named]))
      // Who has heard it has looked in vain by now: it is rung again.
      await sleep(50)
      insert.release()
      expect(await inserted).toEqual(['a', 'b'])
      await one.flush()
      expect(await rung()).toEqual([named, named])
    } finally {
      await client.close()
      await proxy.stop()
    }
  })

  test('without names for many, for odd `_id`s and fields, and where one is to sleep', async () => {
    const one = new OwnerClient<Document>(database.db, order.model)
    const asleep = { _id: 's', lockedAt: new Date(Date.now() + 60_000) }
    for (const docs of [
      Array.from({ length: 9 }, () => ({})),
      [{ _id: { n: 1 } }],
      [{ _id: 'x'.repeat(65) }],
      [asleep],
      // A look tells of it.
      [{ _id: 'odd', createdAt: 'today' as never }],
    ]) {
      await one.insertMany(docs)
      await one.flush()
    }
    expect(await rung()).toEqual(Array.from({ length: 5 }, () => ({ lifecycles: ['order'], phases: ['Taking'] })))
  })

  test('for the whole phase where others were stored beside what it inserts', async () => {
    const runs = lifecycleOf<Document>().define({
      name: 'runs',
      collection: 'Run',
      phases: { Queued: { next: ['Ended'] }, Ended: { final: true } },
    })
    const one = new OwnerClient(database.db, runs.model)
    const queued = ['s@1', 's@2'].map((_id) => ({ _id, phase: 'Queued' }) as never)
    expect(await insertRuns(one, queued)).toBe(2)
    await one.flush()
    expect(await rung()).toEqual([{ lifecycles: ['runs'], phases: ['Queued'] }])
  })

  test('with the `_id` that the driver would have made, or that its client makes', async () => {
    const one = new OwnerClient<Document>(database.db, order.model)
    const id = await one.insert({})
    let made = 0
    const pkFactory = { createPk: () => `made-${++made}` }
    const client = await new MongoClient(database.uri, { pkFactory }).connect()
    try {
      const two = new OwnerClient<Document>(client.db(database.db.databaseName), order.model)
      expect(await two.insert({})).toBe('made-1')
      await Promise.all([one.flush(), two.flush()])
      expect(new Set((await rung()).flatMap(({ ids }) => ids.map(String)))).toEqual(new Set([String(id), 'made-1']))
      expect(await database.db.collection('Order').countDocuments({ _id: { $in: [id, 'made-1'] } } as never)).toBe(2)
    } finally {
      await client.close()
    }
  })

  test('for a look where a rule has something to move', async () => {
    const one = owner()
    await one.insert({ _id: 'a', phase: 'Taken', state: 'Cancelled' })
    await one.flush()
    expect(await rung()).toEqual([{ lifecycles: ['order'] }])
    await one.setState('a', 'Wanted', { force: true })
    await one.setState('a', 'Cancelled')
    await one.flush()
    expect(await rung()).toHaveLength(2)
  })

  test('for nothing that gives a replica nothing to do', async () => {
    const one = owner()
    await one.insert({ _id: 'a', phase: 'Taken' })
    await one.setState('a', 'Wanted', { force: true })
    await one.setState('nobody', 'Cancelled')
    expect([await one.wake('nobody'), await one.unpark('a')]).toEqual(['notFound', 'notParked'])
    await one.remove('a')
    await one.flush()
    expect(await rung()).toEqual([])
  })

  test('after the commit of a transaction, as nobody sees before what was written, and not if it aborts', async () => {
    const rings = new OwnerRings(database.db, order.model, {})
    const session = database.client.startSession()
    const insertIn = async (_id: string) => {
      session.startTransaction()
      rings.inserting([{ _id, phase: 'Taking' }], { session })()
      await rings.flush()
    }
    await insertIn('aborted')
    await session.abortTransaction()
    await insertIn('a')
    expect(await rung()).toEqual([])
    await session.commitTransaction()
    await rings.flush()
    const named = (_id: string) => ({ lifecycles: ['order'], phases: ['Taking'], ids: [_id] })
    expect(await rung()).toEqual([named('a')])
    // The same session, a commit that fails: it may have been executed, and is tried again.
    await insertIn('b')
    const { transaction } = session as unknown as { transaction: { transition(to: string): void } }
    const { transition } = transaction
    transaction.transition = () => {
      throw new Error('no answer')
    }
    await expect(session.commitTransaction()).rejects.toThrow('no answer')
    await rings.flush()
    transaction.transition = transition
    await session.commitTransaction()
    await rings.flush()
    expect(await rung()).toEqual([named('a'), named('b'), named('b')])
    await session.endSession()
    await rings.flush()
    expect(await rung()).toHaveLength(3)
  })
})

describe('a ringer', () => {
  const ringer = () => new Ringer(database.db, 'me')

  test('makes no collection where nobody listens, and finds out when somebody does', async () => {
    const one = ringer()
    one.ring({ lifecycles: ['order'] })
    await one.flush()
    expect(await database.db.listCollections().toArray()).toEqual([])
    await somebodyListens()
    await eventually(async () => {
      one.ring({ lifecycles: ['order'] })
      await one.flush()
      expect(await rung()).not.toEqual([])
    })
  })

  test('leaves a collection alone that would grow for ever', async () => {
    await entries().insertOne({ lifecycles: [] })
    const one = ringer()
    one.ring({ lifecycles: ['order'] })
    await one.flush()
    expect(await entries().countDocuments()).toBe(1)
  })

  test('sends the last ring of a storm too; flush sends it at once', async () => {
    await somebodyListens()
    const one = new Ringer(database.db, 'me', undefined, { burst: 1, perSecond: 0.01 })
    one.ring({ lifecycles: ['first'] })
    await eventually(async () => expect(await rung()).toEqual([{ lifecycles: ['first'] }]))
    for (let n = 0; n < 50; n += 1) one.ring({ lifecycles: ['order'], phases: ['Taking'] })
    one.ring({ lifecycles: ['invoice'], phases: ['Sending'] })
    await one.flush()
    expect(await rung()).toEqual([
      { lifecycles: ['first'] },
      { lifecycles: ['order', 'invoice'], phases: ['Taking', 'Sending'] },
    ])
  })

  test('delays and fails nobody when the server is away', async () => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await new MongoClient(proxy.uri, {
      serverSelectionTimeoutMS: 3_000,
    }).connect()
    try {
      await somebodyListens()
      const one = new Ringer(client.db(database.db.databaseName), 'me')
      proxy.refuse()
      one.ring({ lifecycles: ['order'] })
      await one.flush()
      proxy.pass()
      await eventually(async () => {
        one.ring({ lifecycles: ['order'] })
        await one.flush()
        expect(await rung()).not.toEqual([])
      })
    } finally {
      await client.close()
      await proxy.stop()
    }
  })
})
