import { afterEach, describe, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { type Handler, Replica } from '../../src/index.js'
import {
  DUTIES_COLLECTION,
  endDuties,
  LIFECYCLES_COLLECTION,
  readDuties,
  setLimit,
  takeDuties,
} from '../../src/lock/index.js'
import { causeText, systemStatus } from '../../src/operations/index.js'
import { Duties } from '../../src/phases/engine/tick/duties.js'
import { readCensus } from '../../src/phases/index.js'
import { useDatabase } from '../support/database.js'
import {
  backDate,
  recordingLogger,
  replicaOf,
  ShiftedClock,
  type Thing,
  thing,
  thingOf,
  things,
  thingWith,
} from '../support/thing.js'

describe('duties', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  // After that, so that it goes last.
  const database = useDatabase()
  const duties = () => database.db.collection<Document & { _id: string }>(DUTIES_COLLECTION)

  async function prepared(creating: Handler<'Created' | 'Deleting', Thing>, lifecycle = thing) {
    const logger = recordingLogger()
    const replica = replicaOf(database.db, thingWith(creating, lifecycle), { logger })
    replicas.push(replica)
    await replica.prepare()
    // They are begun half a minute after the start, and then by the clock.
    const runAll = () => (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    return { replica, logger, runAll }
  }

  const insert = (n: number, fields: Document = {}, prefix = 'd') =>
    things(database.db).insertMany(
      Array.from({ length: n }, (_, i) => ({ _id: `${prefix}${i}`, phase: 'Creating', ...fields })),
    )
  const status = () => systemStatus({ db: database.db, models: [thing.model] } as never)
  const found = async () => (await readCensus(database.db)).census.get('thing')
  const OLD = { createdAt: new Date('2020-01-01') }

  const take = (by: string, names: readonly string[] = ['a'], shift = 1) =>
    takeDuties(
      database.db,
      names.map((name) => ({ name, everyMs: 60_000 })),
      { by, shift },
    )

  test('one of 20 replicas does it within its interval, and again after that, and after a step back of the clock', async () => {
    const names = ['a', 'b', 'c']
    let shift = 0
    const taken = async () => {
      shift += 1
      const each = await Promise.all(Array.from({ length: 20 }, (_, i) => take(`r${i}`, names, shift)))
      return each.flat().sort()
    }
    expect(await taken()).toEqual(names)
    expect(await taken()).toEqual([])
    await duties().updateOne({ _id: 'a' }, [{ $set: { begunAt: { $subtract: ['$$NOW', 61_000] } } }])
    expect(await taken()).toEqual(['a'])
    await duties().updateMany({}, [{ $set: { begunAt: { $add: ['$$NOW', 600_000] } } }])
    expect(await taken()).toEqual(names)
    await duties().updateOne({ _id: 'b' }, { $set: { begunAt: 'soon' } })
    expect(await taken()).toEqual(['b'])
    await duties().deleteOne({ _id: 'c' })
    expect(await taken()).toEqual(['c'])
  })

  test('what a replica found that was overtaken is not stored, be it by another or by itself', async () => {
    await take('slow')
    const overtaken = () => duties().updateOne({ _id: 'a' }, { $set: { begunAt: new Date(0) } })
    await overtaken()
    expect(await take('slow', ['a'], 2)).toEqual(['a'])
    await endDuties(database.db, { by: 'slow', shift: 1 }, [{ name: 'a', tookMs: 4, found: { n: 0 } }])
    await overtaken()
    expect(await take('quick')).toEqual(['a'])
    await endDuties(database.db, { by: 'slow', shift: 2 }, [{ name: 'a', tookMs: 5, found: { n: 1 } }])
    expect((await readDuties(database.db)).duties).toMatchObject([{ by: 'quick', tookMs: null, found: null }])
    await endDuties(database.db, { by: 'quick', shift: 1 }, [{ name: 'a', tookMs: 7, found: { n: 2 } }])
    expect((await readDuties(database.db)).duties).toMatchObject([
      { by: 'quick', tookMs: 7, found: { n: 2 }, error: null },
    ])
  })

  describe('that take long together', () => {
    /** A replica's duties, each of which does something. */
    function dutiesOf(run: (name: string) => unknown) {
      const clock = new ShiftedClock()
      const done: string[] = []
      const own = new Duties({
        ...{ db: database.db, identity: 'slow', clock, logger: recordingLogger(), serverNow: () => new Date() },
        ...{
          serverClock: { hold: () => undefined, validUntil: () => undefined },
          running: () => [],
          flows: { isRecent: false },
          sweepEveryMs: 300_000,
          watched: () => undefined,
        },
      })
      const list = ['a', 'b', 'c'].map((name) => ({
        ...{ name, everyMs: 60_000 },
        async run() {
          done.push(name)
          await run(name)
          return {}
        },
      }))
      const pass = async (ms: number) => {
        clock.advance(ms)
        await duties().updateMany({}, [{ $set: { begunAt: { $subtract: ['$begunAt', ms] } } }])
      }
      return { own, pass, done, runAll: () => own.runAll(list) }
    }
    const ended = async () =>
      (await readDuties(database.db)).duties
        .filter(({ tookMs }) => tookMs !== null)
        .map(({ name, by }) => `${name} ${by}`)

    test('those that another replica takes after the interval are not done twice', async () => {
      const { runAll, pass, done } = dutiesOf(async (name) => {
        if (name !== 'a') return
        await pass(61_000)
        expect(await take('quick', ['b'])).toEqual(['b'])
      })
      await runAll()
      expect(done).toEqual(['a', 'c'])
      await endDuties(database.db, { by: 'quick', shift: 1 }, [{ name: 'b', tookMs: 1, found: {} }])
      expect(await ended()).toEqual(['a slow', 'b quick', 'c slow'])
    })

    test('each counts from when it was begun: none is late because of those before it', async () => {
      const { runAll, pass, done } = dutiesOf(() => pass(45_000))
      await runAll()
      expect(done).toEqual(['a', 'b', 'c'])
      expect(await ended()).toEqual(['a slow', 'b slow', 'c slow'])
      expect(await take('quick', ['a', 'b', 'c'])).toEqual(['a', 'b'])
    })

    test("are others' as soon as the replica stops", async () => {
      const { own, runAll, done } = dutiesOf(() => own.stop())
      await runAll()
      expect(done).toEqual(['a'])
      expect(await ended()).toEqual(['a slow'])
      expect(await take('quick', ['a', 'b', 'c'])).toEqual(['b', 'c'])
    })
  })

  test('the census counts what waits by kind, what asks, and what nobody takes, with why', async () => {
    const { replica, runAll } = await prepared(
      async (doc, step) => {
        if (doc._id.startsWith('cert')) return step.wait(`certificate of ${doc._id}`, { on: 'certificate', for: '1h' })
        if (doc._id.startsWith('pod')) return step.wait(`pod of ${doc._id}`, { on: 'pod', for: '1h' })
        if (doc._id.startsWith('ask')) return step.ask({ question: 'Go on?' })
        if (doc._id.startsWith('wait')) return step.wait('something', { for: '1h' })
        return step.moveTo('Created')
      },
      thingOf({ limits: ['api'] }),
    )
    await setLimit(database.db, 'api', { slots: 50 })
    for (const [prefix, n] of [
      ['cert', 4],
      ['pod', 2],
      ['ask', 3],
      ['wait', 1],
    ] as const)
      await insert(n, {}, prefix)
    await replica.runOnce()
    await setLimit(database.db, 'api', { slots: 0 })
    await insert(7, OLD, 'stuck')
    await insert(2, {}, 'fresh')
    await things(database.db).insertOne({
      _id: 'left',
      phase: 'Creating',
      lockedBy: 'gone~1#1.1',
      lockedAt: new Date(1_000),
    })
    await replica.runOnce()
    await runAll()
    expect(await found()).toMatchObject({
      overdue: [{ phase: 'Creating', documents: { n: 8 }, why: 'limit', limit: 'api' }],
      waits: [
        { on: 'certificate', phase: 'Creating', documents: { n: 4 } },
        { on: 'pod', documents: { n: 2 } },
        { on: '-', documents: { n: 1 } },
      ],
      questions: { documents: { n: 3 }, nearestDeadline: null, ids: ['ask0', 'ask1', 'ask2'] },
    })
    const { problems, lifecycles } = await status()
    expect(problems.join('\n')).toMatch(
      /^thing: 8 documents due in Creating for over a minute: they wait for a slot of api \(phaselock causes \w{12}\)$/m,
    )
    expect(lifecycles).toMatchObject([{ due: { n: 10 }, sleeping: { n: 10 }, asking: { n: 3 }, held: 0 }])
  })

  test('a lifecycle that no replica looks after is named; so is a duty that failed', async () => {
    const { runAll, replica } = await prepared(async (_doc, step) => step.moveTo('Created'))
    await database.db
      .collection(LIFECYCLES_COLLECTION)
      .insertOne({ _id: 'gone' as never, collection: 'Gone', handledAt: new Date(0) })
    await replica.start()
    await runAll()
    expect(await duties().findOne({ _id: 'lifecycles without replicas' })).toMatchObject({
      found: { unhandled: ['gone'] },
    })
    await duties().updateOne({ _id: 'census of thing' }, { $set: { error: 'no reason' } })
    expect((await status()).causes.rows.map(causeText)).toEqual([
      'gone: no replica has looked after it for five minutes',
      "the duty 'census of thing' failed: no reason",
    ])
    await replica.stop()
    // Without replicas no duty is done: that is the problem, not the duties.
    expect((await status()).causes.rows.map(causeText)).toEqual([
      'no replica is running',
      'gone: no replica has looked after it for five minutes',
    ])
  })

  test('each lifecycle has a census of its own: replicas need not run the same, and a bad one hides no other', async () => {
    const [{ runAll }, other] = [
      await prepared(async (_doc, step) => step.moveTo('Created')),
      await prepared(async (_doc, step) => step.moveTo('Created'), thingOf({ name: 'other', collection: 'Other' })),
    ]
    await insert(2, OLD)
    await runAll()
    await other.runAll()
    const models = [thing.model, thingOf({ name: 'other', collection: 'Other' }).model]
    const { lifecycles } = await systemStatus({ db: database.db, models } as never)
    expect(lifecycles.map(({ census }) => census?.overdue)).toMatchObject([
      [{ phase: 'Creating', documents: { n: 2 }, why: 'busy' }],
      [],
    ])
    // One that nobody does any more goes; one of a newer version, once a day, doesn't.
    const begunAt = new Date(Date.now() - 7_200_000)
    await duties().insertMany([
      { _id: 'census of gone', begunAt, by: 'x', everyMs: 300_000 },
      { _id: 'sweeping', begunAt, by: 'x', everyMs: 86_400_000 },
    ])
    await duties().updateOne({ _id: 'unused limits of keys' }, { $set: { begunAt } })
    await runAll()
    expect((await readDuties(database.db)).duties.map(({ name }) => name)).toEqual([
      'census of other',
      'census of thing',
      'lifecycles without replicas',
      'sweeping',
      'unused limits of keys',
    ])
  })

  test('sweepEvery: how often; 0s: none by this replica, and what others have left goes', async () => {
    const replicaWith = async (sweepEvery: '1m' | '0s') => {
      const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'))
      const replica = replicaOf(database.db, lifecycle, { logger: recordingLogger(), sweepEvery })
      replicas.push(replica)
      await replica.prepare()
      return () => (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    }
    const named = async () => (await readDuties(database.db)).duties.map(({ name, everyMs }) => [name, everyMs])
    await (await replicaWith('1m'))()
    expect(await named()).toEqual([
      ['census of thing', 60_000],
      ['lifecycles without replicas', 60_000],
      ['unused limits of keys', 600_000],
    ])
    await duties().updateMany({}, { $set: { begunAt: new Date(Date.now() - 7_200_000) } })
    await (await replicaWith('0s'))()
    expect(await named()).toEqual([['unused limits of keys', 600_000]])
  })

  test('a census that fails says why, in the log and in the database, and the next one is as ever', async () => {
    const { runAll, logger } = await prepared(async (_doc, step) => step.moveTo('Created'))
    await insert(1)
    await things(database.db).dropIndexes()
    await runAll()
    expect(logger.lines.map(({ message }) => message)).toEqual([
      expect.stringMatching(/^the duty 'census of thing' failed, next in 5 min: Thing has no index/),
    ])
    expect((await readDuties(database.db)).duties.find(({ name }) => name === 'census of thing')?.error).toMatch(
      /^Thing has no index/,
    )
  })

  test('reads few keys of 20,000 documents that sleep, and nothing of those that rest', async () => {
    const { runAll } = await prepared(async (_doc, step) => step.moveTo('Created'))
    await things(database.db).insertMany(
      Array.from({ length: 20_000 }, (_, i) => ({ _id: `r${i}`, phase: 'Created', lockedAt: new Date(0) })),
    )
    await insert(12_000, { lockedAt: new Date('9000-01-01'), progress: { waitingFor: 'x', waitingOn: 'y' } })
    await runAll()
    const { waits, phases } = (await found())!
    expect(waits).toMatchObject([{ on: 'y', documents: { n: 10_000, more: true, about: true } }])
    expect(phases.find(({ phase }) => phase === 'Created')).toMatchObject({ documents: { n: 10_000, more: true } })
  })

  test('10,000 overdue documents in one phase hide neither those of another, nor what sleeps', async () => {
    const { runAll } = await prepared(async (_doc, step) => step.moveTo('Created'))
    await insert(10_500, { ...OLD, lockedAt: new Date(0) })
    await insert(3, { ...OLD, phase: 'Deleting', lockedAt: new Date(1_000), lockedBy: 'gone~1#1.1' }, 'left')
    await insert(2, { lockedAt: new Date('9000-01-01'), progress: { waitingFor: 'x', waitingOn: 'y' } }, 'asleep')
    await runAll()
    expect(await found()).toMatchObject({
      overdue: [
        // Without updatedAt: the index has no order for them, and a thousand are judged.
        { phase: 'Creating', documents: { n: 1_000, more: true }, why: 'busy' },
        { phase: 'Deleting', documents: { n: 3 }, why: 'busy' },
      ],
      waits: [{ on: 'y', documents: { n: 2 } }],
    })
  })

  test('cost six commands and one for each lifecycle, and two where another replica was first', async () => {
    const lifecycles = Array.from({ length: 10 }, (_, i) =>
      thingWith(async (_doc, step) => step.moveTo('Created'), thingOf({ name: `t${i}`, collection: `T${i}` })),
    )
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    const sent: string[] = []
    client.on('commandStarted', ({ commandName }) => sent.push(commandName))
    const sentBy = async (runAll: () => Promise<void>) => {
      sent.length = 0
      await runAll()
      return [...sent]
    }
    try {
      const runAlls = []
      for (let i = 0; i < 2; i += 1) {
        const replica = new Replica({ db: client.db(database.db.databaseName), lifecycles })
        replicas.push(replica)
        await replica.prepare()
        runAlls.push(() => (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll())
      }
      await runAlls[0]!()
      await duties().updateMany({}, { $set: { begunAt: new Date(0) } })
      const censuses = Array(10).fill('aggregate')
      expect(await sentBy(runAlls[0]!)).toEqual([
        'update',
        'find',
        ...censuses,
        'find',
        'delete',
        'aggregate',
        'update',
      ])
      expect(await sentBy(runAlls[1]!)).toEqual(['update', 'find'])
    } finally {
      await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
      await client.close()
    }
  })

  test.each([[''], ['a b'], [5], ['x'.repeat(51)], [null]])('step.wait with on: %j is refused', async (on) => {
    const { replica } = await prepared(async (_doc, step) => step.wait('for it', { on: on as never }))
    await insert(1)
    await replica.runOnce()
    const { progress } = (await things(database.db).findOne({ _id: 'd0' }))!
    expect(progress.error.message).toContain(
      "wait: on: expected letters, digits, _, - and ., at most 50, as in 'certificate'",
    )
  })

  test('what a document waits on goes with the wait', async () => {
    let next: 'on' | 'other' | 'plain' | 'move' = 'on'
    const { replica } = await prepared(async (_doc, step) => {
      if (next === 'move') return step.moveTo('Created')
      return step.wait('for it', next === 'plain' ? {} : { on: next })
    })
    await insert(1)
    const on = async () => (await things(database.db).findOne({ _id: 'd0' }))!['progress'].waitingOn
    for (const [step, expected] of [
      ['on', 'on'],
      ['other', 'other'],
      ['plain', undefined],
      ['on', 'on'],
      ['move', undefined],
    ] as const) {
      next = step
      await backDate(database.db, 'd0', 600_000)
      await replica.runOnce()
      expect(await on()).toBe(expected)
    }
  })

  test('a replica that stops waits for its duty, and begins no other', async () => {
    const { replica, runAll } = await prepared(async (_doc, step) => step.moveTo('Created'))
    await replica.stop()
    await runAll()
    expect(await duties().countDocuments()).toBe(0)
  })
})
