import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { Replica, silentLogger } from '../../src/index.js'
import { operationDefinition } from '../../src/operations/bulk/operation.js'
import {
  beginOperation,
  operationLifecycle,
  operationNamed,
  UsageError,
  unparkDocument,
} from '../../src/operations/index.js'
import { backDate } from '../../src/testing/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { BulkWorld, IN_AN_HOUR, many, PARKED } from './bulk-world.js'

const opens: (() => void)[] = []
const gate = () => {
  const { promise: wait, resolve: open } = Promise.withResolvers<void>()
  opens.push(open)
  return { wait, open }
}
afterEach(() => {
  for (const open of opens.splice(0)) open()
})

/** One more entry of the history. */
const entry = (outcome: string, by: string): Document => {
  const history = { $concatArrays: [{ $ifNull: ['$progress.history', []] }, [{ at: '$$NOW', outcome, by }]] }
  return { $set: { progress: { $mergeObjects: ['$progress', { history }] } } }
}

describe('an operation that acts on a few first', () => {
  const database = useDatabase()
  const operations = () => database.db.collection<Document & { _id: string }>('phaselock.operations')

  async function world(documents: number | Document[], action = 'unpark') {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany((typeof documents === 'number' ? many(documents, PARKED) : documents) as never)
    const { _id } = await w.begin(action, { filter: { lockedAt: { $ne: null } } }, { first: 5, watch: '2m' })
    const acted = () => w.things.countDocuments({ 'progress.operations': _id })
    /** One look of a replica that works on operations, once the operation is due. */
    const look = async (worker = w.worker()) => {
      await operations().updateOne(
        { _id, lockedBy: null, lockedAt: { $lt: new Date('9999-01-01') } },
        { $set: { lockedAt: new Date(0) } },
      )
      await worker.runOnce()
      await worker.stop()
      return operationNamed(w.system, _id)
    }
    /** What the next step of some that it acted on records. */
    const record = async (fields: object, limit = 1_000, outcome = 'error') => {
      const some = await w.things
        .find({ 'progress.operations': _id, fence: null as never })
        .limit(limit)
        .toArray()
      const ids = some.map((one) => one._id)
      const set = { fence: 1, lockedBy: null, ...fields }
      await w.things.updateMany({ _id: { $in: ids } }, [{ $set: set }, entry(outcome, 'api~5f3a9c#8.1')] as never)
    }
    /** A worker that stands still once it has acted on three documents. */
    const stalled = async () => {
      const { wait, open } = gate()
      const killed = w.worker(w.writingThings((count) => (count >= 3 ? wait : undefined)))
      const late = killed.runOnce()
      await eventually(async () => expect(await acted()).toBe(3))
      return { open, killed, late }
    }
    return { w, _id, acted, look, record, stalled }
  }

  test('goes on with tenfold once all of them have recorded an outcome, and none fails again', async () => {
    const { acted, look, record } = await world(100)
    expect(await look()).toMatchObject({
      condition: 'Waiting',
      problem: expect.stringContaining('it watches the 5 that it acted on: 5 have recorded nothing yet'),
    })
    expect(await acted()).toBe(5)
    await record({ phase: 'Created' }, 4)
    await look()
    expect(await acted()).toBe(5)
    await record({ phase: 'Created' })
    await look()
    expect(await acted()).toBe(55)
    await record({ phase: 'Created' })
    expect(await look()).toMatchObject({ condition: 'Done', counts: { seen: 100, done: 100 } })
    expect(await acted()).toBe(100)
  })

  test('stops when one fails for the cause of before, and says so; a person who unparks it has the next few tried', async () => {
    const { w, _id, acted, look, record } = await world(100)
    await look()
    await record({ phase: 'Created' }, 4)
    await record({ lockedAt: new Date(Date.now() + 60_000), 'progress.error': { message: 'no tape' } })
    const stopped = await look()
    expect(stopped).toMatchObject({ condition: 'Parked' })
    expect(stopped.problem).toMatch(
      /of the 5 that it acted on 1 failed for the same cause, [\da-f]{12} \(no tape\): d0000\d; unpark it to try 5 more documents/,
    )
    await look()
    expect(await acted()).toBe(5)
    const own = { ...w.system, models: [operationDefinition.model] }
    await unparkDocument(own, { id: _id }, { by: 'ana' })
    await look()
    expect(await acted()).toBe(10)
  })

  test('a failure for another cause stops nothing, two for the same new one do', async () => {
    const { acted, look, record } = await world(100)
    await look()
    await record({ 'progress.error': { message: 'no ink' } }, 1)
    await record({ phase: 'Created' })
    await look()
    expect(await acted()).toBe(55)
    await record({ 'progress.error': { message: 'no paper' } }, 2)
    await record({ phase: 'Created' })
    expect(await look()).toMatchObject({
      condition: 'Parked',
      problem: expect.stringContaining('2 failed for the same cause'),
    })
    expect(await acted()).toBe(55)
  })

  test('stops when some have recorded nothing in time; one that is gone, or held no longer, counts as it is', async () => {
    const { w, _id, acted, look, record } = await world(20)
    await look()
    await w.things.deleteOne({ 'progress.operations': _id })
    await record({ fence: 1, lockedBy: 'api~5f3a9c#7.2' }, 1)
    expect(await look()).toMatchObject({
      condition: 'Waiting',
      problem: expect.stringContaining('4 have recorded nothing yet'),
    })
    await operations().updateOne({ _id }, { $set: { 'trial.until': new Date(0) } })
    expect(await look()).toMatchObject({
      condition: 'Parked',
      problem: expect.stringContaining('4 have recorded nothing within 2 min'),
    })
    expect(await acted()).toBe(4)
  })

  test('a claim that was let go of without a step is no outcome, nor is a step that ended before', async () => {
    const { w, _id, look, record } = await world(20)
    await w.things.updateMany({}, [entry('park', 'api~5f3a9c#2.1')])
    await look()
    await record({ phase: 'Created' }, 3)
    await record({}, 1, 'released')
    await record({ fence: 2 }, 1, 'checkpoint')
    expect(await look()).toMatchObject({
      condition: 'Waiting',
      problem: expect.stringContaining('2 have recorded nothing yet'),
    })
    await w.things.updateMany({ 'progress.operations': _id }, [entry('wait', 'api~5f3a9c#9.1')])
    await look()
    expect(await w.things.countDocuments({ 'progress.operations': _id })).toBe(20)
  })

  test('an error that stays where no step has run is no failure for the same cause', async () => {
    const failing = { lockedAt: IN_AN_HOUR, progress: { attempts: 1, error: { message: 'no tape' } } }
    const { look, record } = await world(many(20, failing), 'wake')
    await look()
    await record({}, 5, 'released')
    expect(await look()).toMatchObject({ problem: expect.stringContaining('5 have recorded nothing yet') })
  })

  test('killed within the first ones, and worked on by two replicas, it acts on no other before these have an outcome', async () => {
    const { w, _id, acted, look, record, stalled } = await world(100)
    const { open, killed, late } = await stalled()
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    const two = [w.worker(), w.worker()]
    await Promise.all(two.map((one) => one.runOnce()))
    expect(await acted()).toBe(5)
    open()
    await late
    await Promise.all([killed, ...two].map((one) => one.stop()))
    expect(await acted()).toBe(5)
    const { trial, counts } = await operationNamed(w.system, _id)
    expect(counts).toMatchObject({ seen: 5, done: 5 })
    // The causes are those of before the first write, also of those that the killed one had unparked.
    expect(new Set(trial!.watched.map(({ cause }) => cause)).size).toBe(1)
    expect(trial!.watched).toHaveLength(5)
    await record({ 'progress.error': { message: 'no tape' } }, 1)
    await record({ phase: 'Created' })
    const replicas = [1, 2].map(
      () => new Replica({ db: w.db, lifecycles: [operationLifecycle({ db: w.db })], logger: silentLogger }),
    )
    await Promise.all(replicas.map((one) => look(one)))
    expect(await operationNamed(w.system, _id)).toMatchObject({ condition: 'Parked' })
    expect(await acted()).toBe(5)
  })

  test('killed within the first ones: it leaves those alone of which another step has run since, and tells them from its own', async () => {
    const { w, _id, look, stalled } = await world(100)
    const { open, killed, late } = await stalled()
    await w.things.updateOne({ _id: 'd00003' }, [{ $set: { fence: 5 } }, entry('park', 'api~5f3a9c#8.1')])
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    await look()
    open()
    await late
    await killed.stop()
    expect(await w.things.countDocuments({ _id: 'd00003', 'progress.operations': _id })).toBe(0)
  })

  test('killed within the first ones, of which some are gone since: those count too, and the first batch is no larger', async () => {
    const { w, _id, acted, look, stalled } = await world(100)
    const { open, killed, late } = await stalled()
    await w.things.deleteMany({ 'progress.operations': _id })
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    expect(await look()).toMatchObject({ problem: expect.stringContaining('2 have recorded nothing yet') })
    open()
    await late
    await killed.stop()
    expect(await acted()).toBe(2)
  })

  test('a number and a text of the same digits are two documents', async () => {
    const ids = [1, 2, ...Array.from({ length: 9 }, (_, i) => String(i + 1))]
    const { look, record } = await world(ids.map((_id) => ({ _id, phase: 'Creating', ...PARKED })))
    await look()
    await record({ 'progress.error': { message: 'no tape' } }, 2)
    await record({ phase: 'Created' })
    expect(await look()).toMatchObject({
      condition: 'Parked',
      problem: expect.stringContaining('2 failed for the same cause'),
    })
  })

  test.each([Number.NaN, 1e17, -1, 'x'])('a fence of %p, which no claim has written, is none', async (fence) => {
    const { w, _id, acted, look } = await world(many(20, { ...PARKED, fence }))
    await look()
    expect(await acted()).toBe(5)
    await w.things.updateMany({ 'progress.operations': _id }, [entry('wait', 'api~5f3a9c#8.1')])
    expect(await look()).toMatchObject({ problem: expect.stringContaining('5 have recorded nothing yet') })
    await w.things.updateMany({ 'progress.operations': _id }, { $set: { fence: 1 } })
    await look()
    expect(await acted()).toBe(20)
  })

  test('is refused where there is no outcome to wait for', async () => {
    const w = await BulkWorld.of(database.db)
    const request = { action: 'wake', selection: { lifecycle: 'thing', all: true }, by: 'ana' } as const
    for (const [more, problem] of [
      [{ action: 'remove', first: 5 }, 'expected an action after which a step runs'],
      [{ watch: '2m' }, 'expected first (--first) too'],
      [{ first: 0 }, 'expected a whole number from 1 to 200'],
      [{ first: 5, watch: '2' }, 'expected a duration'],
      [{ first: 5, watch: '2d' }, 'expected a duration from 1s to 24h'],
    ] as const) {
      const begun = beginOperation(w.system, { ...request, ...more } as never)
      await expect(begun).rejects.toThrow(UsageError)
      await expect(begun).rejects.toThrow(problem)
    }
  })
})
