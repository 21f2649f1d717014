import { describe, expect, test } from '@jest/globals'
import type { Db } from 'mongodb'
import { undoOperation } from '../../src/operations/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate } from '../support/thing.js'
import { ASLEEP, BulkWorld, HELD, many, PARKED } from './bulk-world.js'

describe('undo beside what others change', () => {
  const database = useDatabase()
  const world = () => BulkWorld.of(database.db)
  const n = (value: number) => ({ options: { phase: 'Creating', set: { n: value } } })
  const state = (value: string) => ({ options: { state: value, force: true } })

  /** Works on the operation that has begun, through a database. */
  async function work(w: BulkWorld, db: Db) {
    const worker = w.worker(db)
    await worker.runOnce()
    await worker.stop()
  }
  async function undo(w: BulkWorld, id: string) {
    await undoOperation(w.system, id, { by: 'ben' })
    return w.finish(`undo-${id}`)
  }

  test.each([
    ['redo', { n: 1 }, n(2), { n: 7 }],
    ['redo', { n: 1 }, n(2), { 'progress.steps': { label: 1 } }],
    ['unpark', {}, {}, { 'progress.attempts': 9 }],
    ['set-state', { state: 'Running' }, state('Stopped'), { state: 'Deleted' }],
    ['migrate', ASLEEP, { options: { phase: 'Deleting' } }, { lockedAt: new Date(5) }],
  ])('%s %j: what somebody changes before its write comes back with the undo', async (action, was, more, edit) => {
    const w = await world()
    await w.things.insertMany(many(4, { ...PARKED, ...was }))
    const { _id } = await w.begin(action, { all: true }, { ...more, concurrency: 1 })
    const ids = ['d00000', 'd00002']
    const db = w.writingThings(async (count) => {
      if (count === 0) await w.things.updateMany({ _id: { $in: ids } }, { $set: edit })
    })
    await work(w, db)
    expect(await undo(w, _id)).toMatchObject({ counts: { seen: 4, done: 4 } })
    const kept = await w.things.find(edit).toArray()
    expect(kept.map((one) => one._id)).toEqual(ids)
  })

  test('a document that changes before each write is left alone, and reported', async () => {
    const w = await world()
    await w.things.insertMany(many(2, { ...PARKED, n: 1 }))
    await w.begin('redo', { all: true }, { id: 'o-1', ...n(2), concurrency: 1 })
    const db = w.writingThings(() => w.things.updateOne({ _id: 'd00000' }, { $inc: { 'progress.attempts': 1 } }))
    await work(w, db)
    const reason = 'it was changed again and again meanwhile'
    expect(await w.finish('o-1')).toMatchObject({
      ...{ counts: { seen: 2, done: 1, skipped: 1 }, troubles: [{ reason, examples: ['d00000'] }] },
    })
    expect(await w.things.find({}, { projection: { n: 1 } }).toArray()).toEqual([
      { _id: 'd00000', n: 1 },
      { _id: 'd00001', n: 2 },
    ])
  })

  test('of two that act at the same time, undoing the later one leaves what the earlier one did', async () => {
    const w = await world()
    await w.things.insertMany(many(20, { ...PARKED, n: 1 }))
    const earlier = await w.begin('redo', { all: true }, { id: 'earlier', ...n(2) })
    const [first, second] = [gate(), gate()]
    // Both have read their documents before either writes.
    const one = work(
      w,
      w.writingThings(() => first.wait),
    )
    await eventually(async () =>
      expect(await database.db.collection('phaselock.operations.changes').countDocuments()).toBe(20),
    )
    const later = await w.begin('redo', { all: true }, { id: 'later', ...n(3) })
    const two = work(
      w,
      w.writingThings(() => second.wait),
    )
    await eventually(async () =>
      expect(await database.db.collection('phaselock.operations.changes').countDocuments()).toBe(40),
    )
    first.open()
    await one
    second.open()
    await two
    expect(await w.things.distinct('n')).toEqual([3])
    expect(await undo(w, later._id)).toMatchObject({ counts: { done: 20 } })
    expect(await w.things.distinct('n')).toEqual([2])
    expect(await undo(w, earlier._id)).toMatchObject({ counts: { done: 20 } })
    expect(await w.things.distinct('n')).toEqual([1])
    expect(await w.things.countDocuments({ lockedAt: PARKED.lockedAt, 'progress.attempts': 3 })).toBe(20)
  })

  test('last in, first out: each operation is undone, whatever it was', async () => {
    const w = await world()
    const before = many(3, { ...PARKED, n: 1, state: 'Running' })
    await w.things.insertMany(before)
    const ran = [
      await w.run('unpark', { all: true }),
      await w.run('redo', { all: true }, n(2)),
      await w.run('set-state', { all: true }, state('Stopped')),
      await w.run('migrate', { all: true }, { options: { phase: 'Deleting' } }),
      await w.run('redo', { all: true }, n(3)),
      await w.run('set-state', { all: true }, state('Deleted')),
    ]
    for (const { _id } of ran.reverse()) expect(await undo(w, _id)).toMatchObject({ counts: { seen: 3, done: 3 } })
    for (const { _id, ...was } of before) {
      const { progress, ...own } = (await w.things.findOne({ _id }))!
      const { history, operations: _, ...left } = progress
      expect({ ...own, progress: left }).toEqual({ _id, ...was })
      expect(history.length).toBeGreaterThan(5)
    }
  })

  test('the earlier one first: what the later one has changed is left alone, and reported with its name', async () => {
    const w = await world()
    await w.things.insertMany(many(3, { ...PARKED, n: 1 }))
    const earlier = await w.run('redo', { all: true }, n(2))
    const later = await w.run('redo', { filter: { _id: { $ne: 'd00001' } } }, n(3))
    expect(await undo(w, earlier._id)).toMatchObject({
      counts: { done: 1, skipped: 2 },
      troubles: [{ reason: `operation ${later._id} has acted on it since: undo that one first`, count: 2 }],
    })
    expect(await undo(w, later._id)).toMatchObject({ counts: { done: 2 } })
    expect(await w.things.find({}, { projection: { n: 1 } }).toArray()).toEqual([
      ...[
        { _id: 'd00000', n: 2 },
        { _id: 'd00001', n: 1 },
        { _id: 'd00002', n: 2 },
      ],
    ])
  })

  test('one of which a document has forgotten that it acted, because five others have since, is not passed over in silence', async () => {
    const w = await world()
    await w.things.insertMany(many(1, { ...PARKED, n: 0 }))
    const ran = []
    for (let i = 1; i <= 6; i += 1) ran.push(await w.run('redo', { all: true }, n(i)))
    expect(await undo(w, ran[0]!._id)).toMatchObject({
      counts: { skipped: 1, unchanged: 0 },
      troubles: [{ reason: `operation ${ran[5]!._id} has acted on it since: undo that one first` }],
    })
  })

  test('a state that two operations have set is put back by the later one only', async () => {
    const w = await world()
    await w.things.insertMany(many(2, { ...PARKED, state: 'Running' }))
    const earlier = await w.run('set-state', { all: true }, state('Stopped'))
    await w.things.updateOne({ _id: 'd00000' }, { $set: { state: 'Running' } })
    const later = await w.run('set-state', { all: true }, state('Stopped'))
    expect(later.counts).toMatchObject({ done: 1, unchanged: 1 })
    expect(await undo(w, earlier._id)).toMatchObject({
      counts: { done: 1, skipped: 1 },
      troubles: [{ reason: `operation ${later._id} has acted on it since: undo that one first` }],
    })
    expect(await w.things.findOne({ _id: 'd00000' })).toMatchObject({ state: 'Stopped' })
  })

  test('a state that an insert has left for a document that is held comes back', async () => {
    const w = await world()
    const next = { set: { state: 'Deleted' }, by: 'owner', at: new Date() }
    await w.things.insertMany(many(1, { ...HELD, state: 'Running', progress: { claims: 1, next } }))
    const { _id } = await w.run('set-state', { all: true }, state('Stopped'))
    expect(await w.things.findOne({})).toMatchObject({ state: 'Stopped', progress: { next: { set: {} } } })
    expect(await undo(w, _id)).toMatchObject({ counts: { done: 1 } })
    expect(await w.things.findOne({})).toMatchObject({ state: 'Deleted' })
  })
})
