import { describe, expect, test } from '@jest/globals'
import { Audit, silentLogger } from '../../src/index.js'
import { abortOperation, listPauses, operationNamed, undoOperation } from '../../src/operations/index.js'
import { backDate } from '../../src/testing/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { gate, replicaOf, thingWith } from '../support/thing.js'
import { ASLEEP, BulkWorld, HELD, IN_AN_HOUR, many, PARKED } from './bulk-world.js'

describe('an operation that moves documents', () => {
  const database = useDatabase()
  const world = () => BulkWorld.of(database.db)

  test('redo: they begin again, in a phase, at a step, with other fields; what is held is left alone', async () => {
    const w = await world()
    await w.things.insertMany([
      ...many(2, { ...PARKED, n: 1 }),
      { _id: 'created', phase: 'Created', state: 'Running', n: 1 },
      { _id: 'held', phase: 'Creating', ...HELD, n: 1 },
    ])
    const options = { phase: 'Creating', step: 'label', set: { n: 2, way: '$phase' } }
    const ended = await w.run('redo', { filter: { n: 1 } }, { options })
    expect(ended).toMatchObject({ condition: 'Done', counts: { seen: 4, done: 3, skipped: 1 } })
    expect(await w.things.findOne({ _id: 'held' })).toEqual({ _id: 'held', phase: 'Creating', ...HELD, n: 1 })
    expect(await w.things.findOne({ _id: 'created' })).toMatchObject({
      ...{ phase: 'Creating', state: 'Running', n: 2, way: '$phase', lockedAt: new Date(0) },
      progress: { step: 'label', attempts: 0, claims: 0, operations: [ended._id] },
    })
    const seen: unknown[] = []
    const replica = replicaOf(
      database.db,
      thingWith(async (doc, step) => {
        seen.push([doc._id, step.name, step.attempt, doc.n])
        return step.moveTo('Created')
      }),
    )
    await replica.runOnce()
    await replica.stop()
    expect(seen.sort()).toEqual([
      ['created', 'label', 1, 2],
      ['d00000', 'label', 1, 2],
      ['d00001', 'label', 1, 2],
    ])
    const again = await w.run('redo', { filter: { n: 2 } }, { options: { phase: undefined, set: undefined } })
    expect(again).toMatchObject({ counts: { seen: 3, skipped: 3 } })
    expect(again.troubles[0]!.reason).toContain('or its phase has no handler: phase (--to-phase) says where it begins')
  })

  test('undo puts back what is as the operation has left it, and nothing else', async () => {
    const w = await world()
    const before = many(6, { ...PARKED, n: 1 })
    await w.things.insertMany([...before, { _id: 'held', phase: 'Creating', ...HELD, n: 1 }])
    const redo = await w.run('redo', { filter: { n: 1 } }, { options: { phase: 'Deleting', set: { n: 2, m: 1 } } })
    // One has run since, one has another value, one was woken by another operation, one is gone.
    await w.things.updateOne({ _id: 'd00001' }, { $set: { fence: 7 } })
    await w.things.updateOne({ _id: 'd00002' }, { $set: { n: 3 } })
    await w.run('set-state', { filter: { _id: 'd00003' } }, { options: { state: 'Deleted' } })
    await w.things.deleteOne({ _id: 'd00004' })
    const { _id } = await undoOperation({ ...w.system, audit: { by: 'ben' } }, redo._id, { by: 'ben', reason: 'oops' })
    const undone = await w.finish(_id)
    expect(undone).toMatchObject({ condition: 'Done', counts: { seen: 7, done: 2, unchanged: 1, skipped: 4 } })
    expect(
      undone.troubles
        .flatMap(({ examples }) => examples)
        .map(String)
        .every((id) => /^d0000\d$/.test(id)),
    ).toBe(true)
    for (const id of ['d00000', 'd00005']) {
      const { progress, ...own } = (await w.things.findOne({ _id: id }))!
      const { progress: was, ...fields } = before.find((one) => one._id === id)! as never as { progress: object }
      expect(own).toEqual(fields)
      expect(progress).toEqual({ ...was, history: expect.any(Array), operations: [redo._id, _id] })
      expect(progress.history.map(({ to, by }: { to: string; by: string }) => [to, by])).toEqual([
        ['Deleting', 'ana'],
        ['Creating', 'ben'],
      ])
    }
    expect(await w.things.countDocuments({ phase: 'Deleting' })).toBe(3)
    await expect(undoOperation(w.system, redo._id, { by: 'ben' })).rejects.toThrow('exists already')
    await expect(undoOperation(w.system, _id, { by: 'ben' })).rejects.toThrow('undo leaves nothing to put back')
    expect(await new Audit(database.db).list({ action: 'operations undo' })).toHaveLength(1)
  })

  test('undo of unpark, set-state and migrate; of one that was aborted, what it has done', async () => {
    const w = await world()
    await w.things.insertMany([...many(300, PARKED), ...many(2, { ...ASLEEP, state: 'Running' }, 'e')])
    const { _id } = await w.begin('unpark', { parked: true })
    const worker = w.worker(w.writingThings((count) => (count === 10 ? abortOperation(w.system, _id) : undefined)))
    await worker.runOnce()
    await worker.stop()
    expect(await w.things.countDocuments({ lockedAt: new Date(0) })).toBe(200)
    const undo = await undoOperation(w.system, _id, { by: 'ana' })
    expect((await w.finish(undo._id)).counts).toMatchObject({ seen: 200, done: 200 })
    expect(await w.things.countDocuments({ ...PARKED, progress: { $exists: true } })).toBe(300)

    const set = await w.run(
      'set-state',
      { filter: { _id: /^e|^d00000/ } },
      { options: { state: 'Stopped', force: true } },
    )
    expect(set.counts.done).toBe(3)
    await w.things.updateOne({ _id: 'e00001' }, { $set: { state: 'Deleted' } })
    const back = await w.finish((await undoOperation(w.system, set._id, { by: 'ana' }))._id)
    expect(back.counts).toMatchObject({ seen: 3, done: 2, skipped: 1 })
    expect(await w.things.findOne({ _id: 'e00000' })).toMatchObject({ state: 'Running' })
    expect(await w.things.findOne({ _id: 'd00000' })).not.toHaveProperty('state')

    const moved = await w.run('migrate', { filter: { _id: /^e/ } }, { options: { phase: 'Deleting' } })
    expect(moved.counts.done).toBe(2)
    expect(await w.things.findOne({ _id: 'e00000' })).toMatchObject({
      ...ASLEEP,
      phase: 'Deleting',
      progress: ASLEEP.progress,
    })
    await w.finish((await undoOperation(w.system, moved._id, { by: 'ana' }))._id)
    expect(await w.things.findOne({ _id: 'e00000' })).toMatchObject({
      ...ASLEEP,
      phase: 'Creating',
      progress: ASLEEP.progress,
    })
  })

  test('killed in the middle of a page, a redo is done once to each, and undone from what each was first', async () => {
    const w = await world()
    await w.things.insertMany(many(250, { ...PARKED, n: 1 }))
    const { _id } = await w.begin('redo', { parked: true }, { options: { set: { n: 2 } } })
    const { wait, open } = gate()
    const killed = w.worker(w.writingThings((count) => (count >= 100 ? wait : undefined)))
    const late = killed.runOnce()
    await eventually(async () => expect(await w.things.countDocuments({ n: 2 })).toBe(100))
    await backDate(database.db.collection('phaselock.operations'), 60_000)
    expect(await w.finish(_id)).toMatchObject({ counts: { seen: 250, done: 250 } })
    open()
    await late
    await killed.stop()
    expect(await w.things.countDocuments({ 'progress.history': { $size: 1 } })).toBe(250)
    const undo = await undoOperation(w.system, _id, { by: 'ana' })
    expect((await w.finish(undo._id)).counts).toMatchObject({ seen: 250, done: 250 })
    expect(await w.things.countDocuments({ n: 1, lockedAt: PARKED.lockedAt, 'progress.attempts': 3 })).toBe(250)
  })

  test('migrate takes documents out of a phase that is gone; pause and resume name each; cancel stops what runs', async () => {
    const w = await world()
    await w.things.insertMany([{ _id: 'old', phase: 'Making', ...ASLEEP }, ...many(3, { lockedAt: IN_AN_HOUR })])
    expect((await w.run('migrate', { phase: 'Making' }, { options: { phase: 'Creating' } })).counts).toMatchObject({
      seen: 1,
      done: 1,
    })
    expect(
      (await w.run('migrate', { filter: { _id: 'old' } }, { options: { phase: 'Creating' } })).counts,
    ).toMatchObject({
      ...{ done: 0, unchanged: 1, skipped: 0 },
    })
    expect(await w.things.findOne({ _id: 'old' })).toMatchObject({
      ...ASLEEP,
      phase: 'Creating',
      progress: ASLEEP.progress,
    })

    expect((await w.run('pause', { filter: { _id: /^d/ } }, { reason: 'no ink' })).counts).toMatchObject({ done: 3 })
    expect((await listPauses(w.system)).pauses).toContainEqual(
      expect.objectContaining({ _id: 'd00000', by: 'ana', reason: 'no ink' }),
    )
    expect((await w.run('resume', { all: true })).counts).toMatchObject({ seen: 4, done: 3, unchanged: 1 })
    expect((await listPauses(w.system)).pauses).toEqual([])

    await w.things.insertOne({ _id: 'runs', phase: 'Creating' })
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => {
        await new Promise((_resolve, reject) => step.signal.addEventListener('abort', () => reject(step.signal.reason)))
        return step.moveTo('Created')
      }),
      { logger: silentLogger },
    )
    await replica.start()
    await eventually(() => expect(replica.status().running).toBe(1))
    const cancelled = await w.run('cancel', { filter: { _id: { $in: ['runs', 'old'] } } }, { reason: 'stuck' })
    expect(cancelled.counts).toMatchObject({ seen: 2, done: 1, skipped: 1 })
    await eventually(async () =>
      expect(await w.things.findOne({ _id: 'runs' })).toMatchObject({ lockedAt: PARKED.lockedAt }),
    )
    expect((await w.things.findOne({ _id: 'runs' }))!['progress'].error.message).toContain('cancelled by ana: stuck')
    await replica.stop()
  })

  test('of which none can be undone, or that is misspelt, says so', async () => {
    const w = await world()
    await w.things.insertMany(many(3, ASLEEP))
    const woken = await w.run('wake', { all: true })
    await expect(undoOperation(w.system, woken._id, { by: 'a' })).rejects.toThrow('wake leaves nothing to put back')
    const open = await w.begin('redo', { all: true })
    await expect(undoOperation(w.system, open._id, { by: 'a' })).rejects.toThrow('has not ended')
    await expect(undoOperation(w.system, 'redo-1', { by: 'a' })).rejects.toThrow("there is no operation 'redo-1'")
    const mistakes: [string, object, string][] = [
      ['redo', { phase: 'Created' }, "expected a phase of thing with a handler (Creating, Deleting), got 'Created'"],
      [
        'redo',
        { set: { lockedAt: 1 } },
        "set (--set): expected fields of the documents' owner, at their top level, got 'lockedAt'",
      ],
      ['redo', { set: { 'a.b': 1 } }, "got 'a.b'"],
      [
        'migrate',
        {},
        "phase (--to-phase): expected where to, a phase of thing that isn't final (Creating, Created, Deleting), got none",
      ],
      ['migrate', { phase: 'Deleted' }, "got 'Deleted'"],
      [
        'undo',
        {},
        "expected an action (wake, unpark, set-state, redo, migrate, pause, resume, cancel, remove), got 'undo'",
      ],
    ]
    for (const [action, options, problem] of mistakes)
      await expect(w.begin(action, { all: true }, { options })).rejects.toThrow(problem)
    expect((await operationNamed(w.system, open._id)).condition).toBe('Waiting')
  })
})
