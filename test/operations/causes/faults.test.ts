import { afterEach, describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { Replica, ReplicaOptions, RunnableLifecycle } from '../../../src/index.js'
import { endDuties, REPLICAS_COLLECTION, setLimit, takeDuties } from '../../../src/lock/index.js'
import {
  beginOperation,
  type CauseRow,
  causes,
  pauseWork,
  type System,
  workOnOperations,
} from '../../../src/operations/index.js'
import { Schedules } from '../../../src/schedules/index.js'
import { eventually, useDatabase } from '../../support/database.js'
import {
  backDate,
  type CreatingHandler,
  gate,
  recordingLogger,
  replicaOf,
  thing,
  thingOf,
  things,
  thingWith,
} from '../../support/thing.js'

/** Each fault is made for real, and found by a census of a replica that is ticked by hand. */
describe('what needs a person, by its fault', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const database = useDatabase()
  const system: System = { db: undefined as never, models: [thing.model] }
  const found = async (kind: string, models: System['models'] = system.models): Promise<CauseRow | undefined> =>
    (await causes({ db: database.db, models })).rows.find((row) => row.kind === kind)

  async function prepared(lifecycle: RunnableLifecycle, options: Partial<ReplicaOptions> = {}) {
    const replica = replicaOf(database.db, lifecycle, { logger: recordingLogger(), doorbell: 'off', ...options })
    replicas.push(replica)
    await replica.prepare()
    const count = () => (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    const work = async () => {
      await replica.tick()
      await replica.idle()
      await count()
    }
    return { replica, work, count }
  }
  const insert = (ids: readonly string[], fields: Document = {}) =>
    things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating', ...fields })) as never[])
  const LONG_AGO = { createdAt: new Date('2020-01-01') }
  const fails: CreatingHandler = async (doc) => {
    throw new Error(`no paper in printer ${doc._id.length}`)
  }
  const idle: CreatingHandler = async (_doc, step) => step.wait('a van', { for: '1h' })

  test('an error that three documents have; one of two is none yet', async () => {
    const { work } = await prepared(thingWith(fails))
    await insert(['a', 'b'])
    await work()
    expect(await found('error')).toBeUndefined()
    await insert(['ccc'])
    // The census of a moment ago counts for its interval.
    await database.db.collection('phaselock.duties').deleteMany()
    await work()
    expect(await found('error')).toMatchObject({
      ...{ lifecycle: 'thing', phase: 'Creating', documents: { n: 3 }, cause: expect.stringMatching(/^[\da-f]{12}$/) },
      text: expect.stringMatching(/^failing in Creating: .*no paper in printer/),
      ids: expect.arrayContaining(['a', 'b', 'ccc']),
    })
  })

  test('a reason to park, what was registered before, and an operation on its documents alone', async () => {
    const { work } = await prepared(thingWith(async (doc, step) => step.park(doc._id === 'b' ? 'no ink' : 'no paper')))
    await insert(['a', 'b', 'c'])
    await work()
    const { rows } = await causes({ db: database.db, models: [thing.model] })
    const paper = rows.find(({ text }) => text.includes('no paper'))!
    expect(paper).toMatchObject({ kind: 'park', documents: { n: 2 }, ids: ['a', 'c'] })
    expect(paper.before).toContainEqual({
      ...{ at: expect.any(Date), by: null },
      what: expect.stringMatching(/^thing: definition \w{12} registered for the first time$/),
    })
    const on = { db: database.db, models: [thing.model] }
    const request = { action: 'unpark', selection: { lifecycle: 'thing', cause: paper.cause }, by: 'ana' } as const
    const { _id, expected, cause } = await beginOperation(on, request)
    expect({ expected, cause }).toEqual({ expected: 2, cause: paper.cause })
    await workOnOperations(on, [_id])
    const states = await things(database.db)
      .find({}, { sort: { _id: 1 } })
      .toArray()
    expect(states.map(({ lockedAt }) => lockedAt.getUTCFullYear() === 9999)).toEqual([false, true, false])
    const bad = { ...request, selection: { lifecycle: 'thing', cause: 'no paper' } }
    await expect(beginOperation(on, bad)).rejects.toThrow('expected the id of a cause, 12 hex digits')
  })

  test('due, and paused: by whom, and what changed before', async () => {
    const { work } = await prepared(thingWith(idle))
    await pauseWork({ db: database.db, models: [thing.model], audit: { by: 'ana' } }, { lifecycle: 'thing', by: 'ana' })
    await insert(['a'], { createdAt: new Date(Date.now() - 90_000) })
    await work()
    const row = await found('overdue')
    expect(row).toMatchObject({
      term: 'pause',
      documents: { n: 1 },
      text: expect.stringContaining('paused: thing by ana'),
    })
    expect(row!.action).toEqual({ command: 'phaselock resume thing', preview: 'phaselock pauses thing' })
  })

  test('due, and without a slot of its limit', async () => {
    await setLimit(database.db, 'printers', { slots: 0 })
    const limited = thingOf({
      phases: {
        ...thing.model.phases,
        Creating: { next: ['Created', 'Deleting'], limits: ['printers'] },
        Created: { rest: true },
        Deleting: { next: ['Deleted'] },
        Deleted: { final: true },
      },
    })
    const { work } = await prepared(thingWith(idle, limited))
    await insert(['a'], LONG_AGO)
    await work()
    expect(await found('overdue', [limited.model])).toMatchObject({
      term: 'limit',
      text: expect.stringContaining('they wait for a slot of printers'),
    })
  })

  test('a phase that the lifecycle lacks', async () => {
    const { work } = await prepared(thingWith(idle))
    await insert(['a', 'b'], { phase: 'Craeting' })
    await work()
    expect(await found('unknown-phase')).toMatchObject({ phase: 'Craeting', documents: { n: 2 } })
  })

  test('a field that no claim can use, and documents without a phase', async () => {
    const { count } = await prepared(thingWith(idle))
    await insert(['a'], { lockedAt: /x/ })
    await things(database.db).insertOne({ _id: 'none' } as never)
    // A tick would put it aside.
    await count()
    expect(await found('broken')).toMatchObject({
      documents: { n: 1 },
      ids: ['a'],
      text: "whose lockedAt can't be used: it is a regular expression",
    })
    expect(await found('unknown-phase')).toMatchObject({
      phase: '(missing)',
      ids: ['none'],
      action: { command: 'phaselock check --repair' },
    })
  })

  test('step after step without progress', async () => {
    const endless = thingOf({ backOff: { afterSteps: 10 } })
    const { work } = await prepared(thingWith(async (_doc, step) => step.again({ step: 'again' }), endless))
    await insert(['a'])
    await work()
    expect(await found('loop', [endless.model])).toMatchObject({ phase: 'Creating', documents: { n: 1 }, ids: ['a'] })
  })

  test('a question whose deadline is near', async () => {
    const { work } = await prepared(
      thingWith(async (_doc, step) =>
        step.ask({ question: 'Which printer?', options: ['p1', 'p2'], timeout: '30m', onTimeout: 'p1' }),
      ),
    )
    await insert(['a'])
    await work()
    expect(await found('question')).toMatchObject({
      documents: { n: 1 },
      ids: ['a'],
      text: expect.stringContaining('the nearest deadline is'),
    })
  })

  test('no replica, and none of a lifecycle', async () => {
    const other = thingOf({ name: 'other', collection: 'Other' })
    const { replica } = await prepared(thingWith(idle))
    const both = [thing.model, other.model]
    expect(await found('no-replica', both)).toMatchObject({ text: 'no replica is running' })
    replica.wakeBetweenTicks()
    await replica.tick()
    await eventually(async () => expect(await found('no-replica', both)).toBeUndefined())
    expect(await found('no-replica-of', both)).toMatchObject({ lifecycle: 'other' })
  })

  test('a dead replica, until its leases are over', async () => {
    const held = gate()
    const { replica } = await prepared(
      thingWith(async (_doc, step) => {
        await held.wait
        return step.moveTo('Created')
      }),
      { beatEvery: '1s' } as never,
    )
    await insert(['a'])
    await replica.start()
    const beats = database.db.collection<Document & { _id: string }>(REPLICAS_COLLECTION)
    await eventually(async () => expect(await beats.findOne({ 'lifecycles.held': 1 })).not.toBeNull())
    const beat = (await beats.findOne({}))!
    held.open()
    await replica.stop()
    const died = (secondsAgo: number) =>
      beats.replaceOne(
        { _id: beat._id },
        { ...beat, seenAt: new Date(Date.now() - secondsAgo * 1_000) },
        { upsert: true },
      )
    const slow = thingOf({ lockTimeout: '60s' }).model
    await database.db
      .collection<Document & { _id: string }>('phaselock.lifecycles')
      .updateOne({ _id: 'thing' }, { $set: { lockTimeout: 60_000 } })
    await died(40)
    expect(await found('dead-replica', [slow])).toMatchObject({ documents: { n: 1, about: true } })
    await died(61)
    expect(await found('dead-replica', [slow])).toBeUndefined()
  })

  test('an operation that no process works on', async () => {
    await prepared(thingWith(idle))
    await insert(['a'])
    const { _id } = await beginOperation(
      { db: database.db, models: [thing.model] },
      { action: 'wake', selection: { lifecycle: 'thing', all: true }, by: 'ana' },
    )
    expect(await found('operation')).toMatchObject({
      ids: [_id],
      text: `left of operation ${_id}, which is unfinished, and nobody works on it`,
    })
  })

  test('a duty that failed', async () => {
    const { replica } = await prepared(thingWith(idle))
    replica.wakeBetweenTicks()
    await replica.tick()
    await eventually(async () => expect(await found('no-replica')).toBeUndefined())
    const shift = { by: 'one', shift: 1 }
    await takeDuties(database.db, [{ name: 'old events', everyMs: 600_000 }], shift)
    await endDuties(database.db, shift, [{ name: 'old events', tookMs: 1, error: 'no disk' }])
    expect(await found('duty')).toMatchObject({ text: "the duty 'old events' failed: no disk" })
  })

  test('a schedule that is broken, and one whose run failed', async () => {
    const schedules = new Schedules({
      db: database.db,
      tasks: { fail: async () => Promise.reject(new Error('no disk')) },
    })
    const { replica } = await prepared(schedules.lifecycles[0]!, { lifecycles: schedules.lifecycles } as never)
    await database.db
      .collection<Document & { _id: string }>('schedules')
      .insertOne({ _id: 'wrong', task: 'fail', cron: 'soon' })
    await schedules.upsert('nightly', { task: 'fail', cron: '0 3 * * *', retry: { attempts: 1 } } as never)
    await replica.runOnce()
    expect(await found('schedule')).toMatchObject({
      ids: ['wrong'],
      text: expect.stringContaining("schedule wrong can't run: "),
    })
    await database.db.collection('schedules').deleteOne({ _id: 'wrong' } as never)
    await schedules.run('nightly', { by: 'ana' } as never)
    for (let i = 0; i < 4; i += 1) await replica.runOnce()
    expect(await found('schedule')).toMatchObject({ ids: ['nightly'], text: 'schedule nightly failed: Error: no disk' })
  })

  test('two replicas of different definitions: what differs, and the documents that only one handles', async () => {
    const second = thingOf({ maxAttempts: 5 })
    for (const lifecycle of [thingWith(idle), thingWith(idle, second)]) {
      const { replica } = await prepared(lifecycle)
      replica.wakeBetweenTicks()
      await replica.tick()
    }
    await eventually(async () =>
      expect(await found('versions')).toMatchObject({
        lifecycle: 'thing',
        documents: null,
        text: expect.stringContaining('live replicas run different definitions: '),
      }),
    )
  })

  test('two replicas count once, and both lists are the same', async () => {
    const both = await Promise.all([prepared(thingWith(fails)), prepared(thingWith(fails))])
    await insert(['a', 'b', 'c'])
    for (const one of both) await one.work()
    const lists = await Promise.all(
      [1, 2].map(async () => (await causes({ db: database.db, models: [thing.model] })).rows),
    )
    expect(lists[0]!.map(({ id, kind }) => [id, kind])).toEqual(lists[1]!.map(({ id, kind }) => [id, kind]))
    expect(lists[0]!.filter(({ kind }) => kind === 'error')).toHaveLength(1)
    expect(await backDate(database.db, 'a', 1)).toBe(1)
  })
})
