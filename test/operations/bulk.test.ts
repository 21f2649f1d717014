import { describe, expect, test } from '@jest/globals'
import { ObjectId } from 'mongodb'
import { Audit, Replica, silentLogger } from '../../src/index.js'
import {
  abortOperation,
  listOperations,
  operationLifecycle,
  operationNamed,
  pauseWork,
  previewOperation,
  registeredLifecycles,
  resumeWork,
} from '../../src/operations/index.js'
import { backDate } from '../../src/testing/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, thingWith } from '../support/thing.js'
import { ASLEEP, BulkWorld, HELD, IN_AN_HOUR, many, PARKED } from './bulk-world.js'

describe('an operation on many documents', () => {
  const database = useDatabase()
  const world = () => BulkWorld.of(database.db)

  test('wakes those that sleep, and says why it left others alone', async () => {
    const w = await world()
    const { things } = w
    await things.insertMany([
      ...many(450, ASLEEP),
      { _id: 'due', phase: 'Creating' },
      { _id: 'held', phase: 'Creating', ...HELD },
      { _id: 'parked', phase: 'Creating', ...PARKED },
      { _id: 'elsewhere', phase: 'Created', ...ASLEEP },
    ])
    const ended = await w.run('wake', { phase: 'Creating' })
    expect(ended).toMatchObject({
      condition: 'Done',
      expected: 453,
      counts: { seen: 453, done: 450, unchanged: 0, skipped: 3, failed: 0 },
    })
    expect(ended.troubles).toEqual([
      { what: 'skipped', reason: 'it is not asleep', count: 1, examples: ['due'] },
      { what: 'skipped', reason: 'it is held, so it is being worked on', count: 1, examples: ['held'] },
      { what: 'skipped', reason: 'it is parked: unpark it', count: 1, examples: ['parked'] },
    ])
    expect(ended.perSecond).toBeGreaterThan(0)
    expect(await things.countDocuments({ lockedAt: new Date(0) })).toBe(450)
    const woken = await things.findOne({ _id: 'd00007' })
    expect(woken).toEqual({
      ...{ _id: 'd00007', phase: 'Creating', lockedAt: new Date(0), updatedAt: expect.any(Date) }, // due since now
      progress: { waitingFor: 'rain', operations: [ended._id] },
    })
    expect(await things.findOne({ _id: 'held' })).toEqual({ _id: 'held', phase: 'Creating', ...HELD })
    expect(await things.findOne({ _id: 'elsewhere' })).toMatchObject(ASLEEP)
  })

  test('unparks, with who did it in the history; sets states, of held ones too; removes those that nobody holds', async () => {
    const w = await world()
    const { things } = w
    await things.insertMany([...many(3, PARKED), { _id: 'held', phase: 'Creating', ...HELD }])
    expect((await w.run('unpark', { parked: true }, { reason: 'new tape' })).counts).toMatchObject({ seen: 3, done: 3 })
    const unparked = await things.findOne({ _id: 'd00001' })
    expect(unparked).toMatchObject({ lockedAt: new Date(0), progress: { attempts: 0, claims: 0 } })
    expect(unparked!['progress'].history[0]).toMatchObject({
      outcome: 'owner',
      by: 'ana',
      reason: expect.stringContaining('unparked (unpark-'),
    })
    expect(unparked!['progress'].error).toBeUndefined()

    await things.updateOne({ _id: 'd00002' }, { $set: { state: 'Deleted' } })
    const set = await w.run('set-state', { phase: 'Creating' }, { options: { state: 'Deleted' } })
    expect(set.counts).toMatchObject({ seen: 4, done: 3, unchanged: 1 })
    expect(await things.countDocuments({ state: 'Deleted' })).toBe(4)
    expect(await things.findOne({ _id: 'held' })).toMatchObject(HELD)

    const removed = await w.run('remove', { filter: { state: 'Deleted' } })
    expect(removed.counts).toMatchObject({ seen: 4, done: 3, skipped: 1 })
    expect(
      await things
        .find()
        .map(({ _id }) => _id)
        .toArray(),
    ).toEqual(['held'])
  })

  test('comes by each of them, whatever the types of their ids are', async () => {
    const w = await world()
    const ids = Array.from({ length: 150 }, (_, i) => [
      i,
      `s${i}`,
      new ObjectId(),
      { n: i },
      new Date(i),
      i + 0.5,
    ]).flat()
    const odd = [Number.NaN, null, true, false, Number.POSITIVE_INFINITY]
    await w.things.insertMany([...ids, ...odd].map((_id) => ({ _id, phase: 'Creating', ...ASLEEP }) as never))
    expect((await w.run('wake', { all: true })).counts).toMatchObject({ seen: 905, done: 905, skipped: 0 })
  })

  test('killed in the middle of a page: whoever goes on does nothing twice and skips nothing', async () => {
    const w = await world()
    await w.things.insertMany(many(500, ASLEEP))
    const { _id } = await w.begin('wake', { all: true })
    // It hangs in the second page, with some of it done: as if it had been killed there.
    const { wait, open } = gate()
    const killed = w.worker(w.writingThings((count) => (count >= 300 ? wait : undefined)))
    const late = killed.runOnce()
    await eventually(async () => expect(await w.things.countDocuments({ lockedAt: new Date(0) })).toBe(300))
    expect(await operationNamed(w.system, _id)).toMatchObject({ condition: 'Running', counts: { seen: 200 } })
    // Those that were woken have run meanwhile, and sleep again; one is gone.
    await w.things.updateMany({ lockedAt: new Date(0) }, { $set: { lockedAt: IN_AN_HOUR, again: true } })
    await w.things.deleteOne({ _id: 'd00450' })
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    const ended = await w.finish(_id)
    // It comes back, and finds its lease lost.
    open()
    await late
    await killed.stop()
    expect(ended).toMatchObject({ condition: 'Done', counts: { seen: 499, done: 499, skipped: 0 } })
    expect(await w.things.countDocuments({ again: true, lockedAt: new Date(0) })).toBe(0)
    expect(await w.things.countDocuments({ again: { $exists: false }, lockedAt: new Date(0) })).toBe(199)
  })

  test("an app's own replica works on it beside its documents, and goes on where a command was killed", async () => {
    const w = await world()
    await w.things.insertMany(many(500, ASLEEP))
    const { _id } = await w.begin('redo', { all: true }, { options: { set: { n: 1 } } })
    const { wait, open } = gate()
    const killed = w.worker(w.writingThings((count) => (count >= 300 ? wait : undefined)))
    const late = killed.runOnce()
    await eventually(async () => expect(await w.things.countDocuments({ n: 1 })).toBe(300))
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    const lifecycles = [
      thingWith(async (_doc, step) => step.moveTo('Created')),
      operationLifecycle({ db: database.db }),
    ]
    const own = new Replica({ db: database.db, lifecycles, logger: silentLogger })
    await own.runOnce()
    open()
    await late
    await killed.stop()
    expect(await operationNamed(w.system, _id)).toMatchObject({ condition: 'Done', counts: { seen: 500, done: 500 } })
    await own.runOnce()
    await own.stop()
    // Each has begun again, and is done: no command was there.
    expect(await w.things.countDocuments({ n: 1, phase: 'Created' })).toBe(500)
  })

  test('of a removal that was killed the same: each counts once', async () => {
    const w = await world()
    await w.things.insertMany(many(300, {}))
    const { _id } = await w.begin('remove', { all: true })
    const { wait, open } = gate()
    const killed = w.worker(w.writingThings((count) => (count >= 250 ? wait : undefined)))
    const late = killed.runOnce()
    await eventually(async () => expect(await w.things.countDocuments()).toBe(50))
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    expect(await w.finish(_id)).toMatchObject({ condition: 'Done', counts: { seen: 300, done: 300 } })
    open()
    await late
    await killed.stop()
  })

  test('ends after the page that is under way when it is aborted; one that nobody works on at once', async () => {
    const w = await world()
    await w.things.insertMany(many(1_000, ASLEEP))
    const { _id } = await w.begin('wake', { all: true })
    const worker = w.worker(
      w.writingThings(async (count) => {
        if (count === 250) await abortOperation({ ...w.system, audit: { by: 'ben' } }, _id)
      }),
    )
    await worker.runOnce()
    await worker.stop()
    expect(await operationNamed(w.system, _id)).toMatchObject({
      condition: 'Aborted',
      counts: { seen: 400, done: 400 },
    })
    expect(await w.things.countDocuments({ lockedAt: new Date(0) })).toBe(400)
    await expect(abortOperation(w.system, _id)).rejects.toThrow('has ended already: it is Aborted')
    expect(await new Audit(database.db).list({ action: 'operations abort' })).toMatchObject([
      { by: 'ben', target: `operation ${_id}`, outcome: 'done' },
    ])
    const other = await w.begin('wake', { all: true })
    await abortOperation(w.system, other._id)
    expect(await w.finish(other._id)).toMatchObject({ condition: 'Aborted', counts: { seen: 0 } })
  })

  test('beside another one over the same documents: each has its effect, once', async () => {
    const w = await world()
    await w.things.insertMany(many(300, ASLEEP))
    const [wake, set, remove] = [
      await w.begin('wake', { all: true }),
      await w.begin('set-state', { all: true }, { options: { state: 'Deleted' } }),
      await w.begin('remove', { filter: { _id: { $lt: 'd00100' } } }),
    ]
    const [one, other] = [w.worker(), w.worker()]
    await Promise.all([one.runOnce(), other.runOnce()])
    await Promise.all([one.stop(), other.stop()])
    for (const { _id, expected } of [wake, set, remove]) {
      const { condition, counts } = await operationNamed(w.system, _id)
      expect(condition).toBe('Done')
      expect(counts.seen).toBeLessThanOrEqual(expected)
      expect(counts.failed).toBe(0)
    }
    expect(await w.things.countDocuments()).toBe(200)
    expect(await w.things.countDocuments({ lockedAt: new Date(0), state: 'Deleted' })).toBe(200)
  })

  test('a thousand that refuse to be written, before the good ones, stop nothing and are told by why', async () => {
    await database.db.createCollection('Thing', {
      validator: { $or: [{ strict: { $exists: false } }, { 'progress.operations': { $exists: false } }] },
    })
    const w = await world()
    await w.things.insertMany([...many(1_000, { strict: true, ...ASLEEP }, 'bad'), ...many(50, ASLEEP, 'good')])
    const ended = await w.run('wake', { all: true })
    expect(ended).toMatchObject({ condition: 'Done', counts: { seen: 1_050, done: 50, failed: 1_000 } })
    expect(ended.troubles).toEqual([
      {
        what: 'failed',
        reason: expect.stringContaining('failed validation'),
        count: 1_000,
        examples: ['bad00000', 'bad00001', 'bad00002'],
      },
    ])
  })

  test('goes on where the database was away for a while; documents that vanish or change in front of it are left alone', async () => {
    const w = await world()
    await w.things.insertMany(many(100, { ...ASLEEP, n: 1 }))
    const { _id } = await w.begin('wake', { filter: { n: 1 } })
    const worker = w.worker(
      w.writingThings(async (count) => {
        if (count === 20) throw new Error('connection reset')
        if (count === 30) {
          await w.things.deleteOne({ _id: 'd00099' })
          await w.things.updateOne({ _id: 'd00098' }, { $set: { n: 2 } })
        }
      }),
    )
    await worker.runOnce()
    expect(await operationNamed(w.system, _id)).toMatchObject({ condition: 'Waiting', counts: { seen: 0 } })
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    await worker.runOnce()
    await worker.stop()
    const ended = await operationNamed(w.system, _id)
    expect(ended).toMatchObject({ condition: 'Done', counts: { seen: 100, done: 98, skipped: 2, failed: 0 } })
    const why = Object.fromEntries(ended.troubles.map(({ reason, examples }) => [reason, examples]))
    expect(why).toEqual({ 'it is not asleep': ['d00098'], 'it is gone': ['d00099'] })
  })

  test('goes on while everything is paused; is paused alone by its own lifecycle', async () => {
    const w = await world()
    await w.things.insertMany(many(3, ASLEEP))
    const { _id } = await w.begin('wake', { all: true })
    const worker = w.worker()
    await worker.prepare()
    const models = (await registeredLifecycles(database.db, '')).map(({ model }) => model)
    const system = { ...w.system, models }
    expect(await pauseWork(system, { by: 'ana' })).toMatchObject([{ lifecycle: 'thing' }])
    await pauseWork(system, { lifecycle: 'phaselock-operation', id: _id, by: 'ana' })
    await worker.runOnce()
    expect((await operationNamed(w.system, _id)).counts.seen).toBe(0)
    await resumeWork(system, { lifecycle: 'phaselock-operation', id: _id })
    await worker.runOnce()
    await worker.stop()
    expect(await operationNamed(w.system, _id)).toMatchObject({ condition: 'Done', counts: { done: 3 } })
  })

  test('is previewed; looks at no more than it may; says what it expected', async () => {
    const w = await world()
    await w.things.insertMany(many(30, ASLEEP))
    const request = { action: 'wake', selection: { lifecycle: 'thing', phase: 'Creating' }, by: 'ana' } as const
    const preview = await previewOperation(w.system, request)
    expect(preview).toMatchObject({ action: 'wake', lifecycle: 'thing', count: 30 })
    expect(preview.examples).toHaveLength(5)
    expect(await listOperations(w.system)).toMatchObject({ operations: [] })
    const mistakes: [string, object, object, string][] = [
      [
        'wkae',
        { all: true },
        {},
        "expected an action (wake, unpark, set-state, redo, migrate, pause, resume, cancel, remove), got 'wkae'; did you mean 'wake'?",
      ],
      ['wake', {}, {}, 'expected which documents of thing are meant, got nothing'],
      ['wake', { filter: {} }, {}, 'expected which documents of thing are meant, got an empty filter'],
      ['wake', { all: true, phase: 'Creating' }, {}, 'expected all (--all) or a filter, got both'],
      [
        'wake',
        { phase: 'Craeting' },
        {},
        "expected a phase of thing (Creating, Created, Deleting, Deleted), got 'Craeting'",
      ],
      ['wake', { lifecycle: 'thong', all: true }, {}, "expected a lifecycle (thing), got 'thong'"],
      ['wake', { filter: { $nope: 1 } }, {}, 'expected a filter that MongoDB can use, got'],
      ['remove', { filter: { at: { $gte: new Date(Number.NaN) } } }, {}, "'at.$gte' is an invalid date"],
      ['wake', { filter: { n: 7 } }, {}, 'no document of thing matches: there is nothing to wake'],
      [
        'wake',
        { all: true },
        { atMost: 29 },
        'expected at most 29 documents of thing to match, got more; nothing was changed',
      ],
      ['wake', { all: true }, { rate: 0 }, 'rate: expected a whole number from 1 to 100000, got 0'],
      [
        'wake',
        { all: true },
        { options: { state: 'Deleted' } },
        "wake: unknown option 'state' (--to-state); known: none",
      ],
      [
        'redo',
        { all: true },
        { options: { set: { at: new Date(Number.NaN) } } },
        "set (--set): expected fields that can be stored: 'at' is an invalid date",
      ],
      ['set-state', { all: true }, {}, 'state (--to-state): expected the state to be set, got none'],
      ['set-state', { all: true }, { options: { state: 'Delted' } }, "did you mean 'Deleted'"],
    ]
    for (const [action, selection, more, problem] of mistakes)
      await expect(w.begin(action, selection, more)).rejects.toThrow(problem)
    expect(await listOperations(w.system)).toMatchObject({ operations: [] })
    // More came after it was begun.
    const { _id } = await w.begin('wake', { all: true }, { atMost: 30 })
    await w.things.insertMany(many(10, ASLEEP, 'e'))
    expect(await w.finish(_id)).toMatchObject({ counts: { seen: 30, done: 30 } })
  })
})
