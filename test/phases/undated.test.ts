import { afterEach, describe, expect, test } from '@jest/globals'
import { ObjectId } from 'mongodb'
import { silentLogger } from '../../src/index.js'
import { CLAIM_INDEX, dateUndated, termsOf } from '../../src/lock/index.js'
import { countPhases } from '../../src/operations/index.js'
import { PhaseQueues } from '../../src/phases/engine/claim/phase-queues.js'
import { clientAt } from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { replicaOf, ShiftedClock, SteppedClock, thing, thingOf, things, thingWith } from '../support/thing.js'

describe('documents that are left due and say nowhere since when', () => {
  const closing: (() => Promise<unknown>)[] = []
  afterEach(async () => {
    for (const close of closing.splice(0)) await close()
  })
  const database = useDatabase()
  /** Nothing of it is ever claimed: nobody has set its limit. */
  const stuck = thingWith(async (_doc, step) => step.moveTo('Created'), thingOf({ limits: ['unset'] }))
  const dated = () => things(database.db).distinct('_id', { createdAt: { $type: 'date' } })

  async function prepared() {
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri)
    const db = client.db(database.db.databaseName)
    const clock = new ShiftedClock()
    const replica = replicaOf(db, stuck, { clock, doorbell: 'off', logger: silentLogger })
    closing.push(
      () => replica.stop(),
      () => client.close(),
      () => proxy.stop(),
    )
    await replica.prepare()
    const tickAfter = async (ms: number) => {
      proxy.stepClock(ms)
      clock.advance(ms)
      await replica.tick()
    }
    const waiting = async () => {
      const [row] = await countPhases({ db, models: [stuck.model] }, { fresh: true })
      const { due, undated, oldestDueAt, at } = row!
      return { due: due.n, undated, oldestDueSeconds: oldestDueAt ? (at.getTime() - oldestDueAt.getTime()) / 1_000 : 0 }
    }
    return { proxy, tickAfter, waiting }
  }

  test('are dated by the replica that leaves them due, and nothing else is written to them', async () => {
    const { tickAfter, waiting } = await prepared()
    const documents = [
      { _id: 'text', phase: 'Creating' },
      { _id: 5, phase: 'Creating', lockedAt: null },
      { _id: { a: 1 }, phase: 'Creating', lockedAt: new Date(0) },
    ]
    await things(database.db).insertMany(documents as never[])
    await tickAfter(0)
    expect(await waiting()).toMatchObject({ due: 3, undated: 3, oldestDueSeconds: 0 })
    await tickAfter(6_000)
    expect(await waiting()).toMatchObject({ due: 3, undated: 0 })
    const stored = await things(database.db).find().toArray()
    expect(stored.map(({ createdAt: _, ...rest }) => rest)).toEqual(documents)
    // As time passes its age grows; what is dated stays so.
    const first = stored[0]!['createdAt']
    await tickAfter(60_000)
    expect((await things(database.db).findOne({ _id: 'text' }))!['createdAt']).toEqual(first)
    expect((await waiting())!.oldestDueSeconds).toBeGreaterThan(59)
  })

  test('are dated after five seconds in which each look found something due, later ones each half minute', async () => {
    const clock = new SteppedClock()
    const queues = new PhaseQueues(['Creating'], { clock, isPaused: () => false, onOffered: () => undefined })
    const lookAfter = async (ms: number, due = ['Creating']) => {
      clock.advance(ms)
      for (const phase of queues.leftDue(new Set(due)))
        await dateUndated(database.db.collection('Thing'), termsOf(30_000), phase)
    }
    await things(database.db).createIndex(CLAIM_INDEX)
    await things(database.db).insertOne({ _id: 'first', phase: 'Creating' })
    await lookAfter(0)
    await lookAfter(4_000)
    expect(await dated()).toEqual([])
    await lookAfter(1_000)
    expect(await dated()).toEqual(['first'])
    await things(database.db).insertOne({ _id: 'later', phase: 'Creating' })
    await lookAfter(29_000)
    expect(await dated()).toEqual(['first'])
    await lookAfter(1_000)
    expect(await dated()).toEqual(['first', 'later'])
    // Nothing is due in between: it begins anew.
    await lookAfter(40_000, [])
    await things(database.db).insertOne({ _id: 'new', phase: 'Creating' })
    await lookAfter(40_000)
    expect(await dated()).toEqual(['first', 'later'])
  })

  test('only those: not what has a date, is held, asleep or parked, in another phase, or has a createdAt of its own', async () => {
    await prepared()
    const soon = new Date(Date.now() + 60_000)
    const others = [
      { _id: new ObjectId(), phase: 'Creating' },
      { _id: 'updated', phase: 'Creating', updatedAt: new Date() },
      { _id: 'begun', phase: 'Creating', progress: { since: new Date() } },
      { _id: 'held', phase: 'Creating', lockedAt: soon, lockedBy: 'a~1#1.1' },
      { _id: 'asleep', phase: 'Creating', lockedAt: soon },
      { _id: 'parked', phase: 'Creating', lockedAt: new Date('9999-12-31') },
      { _id: 'resting', phase: 'Created' },
      { _id: 'own', phase: 'Creating', createdAt: 'yesterday' },
    ]
    await things(database.db).insertMany(others as never[])
    const terms = termsOf(30_000)
    expect(await dateUndated(database.db.collection('Thing'), terms, 'Creating')).toBe(0)
    expect(await things(database.db).find().toArray()).toEqual(others)
  })

  test("get no date by a forward step of the server's clock that isn't confirmed: it would be still to come", async () => {
    const { proxy, tickAfter, waiting } = await prepared()
    await things(database.db).insertOne({ _id: 'text', phase: 'Creating' } as never)
    await tickAfter(0)
    proxy.stepClock(3_600_000)
    await tickAfter(6_000)
    await tickAfter(30_000)
    expect(await dated()).toEqual([])
    proxy.stepClock(-3_600_000)
    await tickAfter(30_000)
    await tickAfter(30_000)
    expect(await waiting()).toMatchObject({ undated: 0, oldestDueSeconds: expect.any(Number) })
    expect((await things(database.db).findOne({ _id: 'text' }))!['createdAt'].getTime()).toBeLessThan(
      Date.now() + 600_000,
    )
  })

  test('that refuse the write stay undated, and hide no other', async () => {
    const validator = { $or: [{ strict: { $ne: true } }, { createdAt: { $exists: false } }] }
    await database.db.createCollection('Thing', { validator })
    const { tickAfter, waiting } = await prepared()
    const documents = Array.from({ length: 9 }, (_, i) => ({ _id: `d${i}`, phase: 'Creating', strict: i % 2 === 0 }))
    await things(database.db).insertMany(documents)
    await tickAfter(0)
    await tickAfter(6_000)
    expect(await dated()).toEqual(['d1', 'd3', 'd5', 'd7'])
    expect(await waiting()).toMatchObject({ due: 9, undated: 5 })
  })

  test('an owner says when he inserts: by insert, insertMany, insert with onDuplicate', async () => {
    const bound = thing.handle({
      Creating: async (_doc, step) => step.moveTo('Created'),
      Deleting: async (_doc, step) => step.moveTo('Deleted'),
    })
    const owner = bound.attach(database.db)
    const before = new Date()
    await owner.insert({ _id: 'one' })
    await owner.insertMany([{ _id: 'two' }, { _id: 'three', createdAt: new Date(5) } as never])
    await owner.insert({ _id: 'four' }, { onDuplicate: 'ignore' })
    const stored = await things(database.db).find().sort({ _id: 1 }).toArray()
    expect(stored.map(({ _id, createdAt }) => [_id, createdAt >= before])).toEqual([
      ['four', true],
      ['one', true],
      ['three', false],
      ['two', true],
    ])
  })
})
