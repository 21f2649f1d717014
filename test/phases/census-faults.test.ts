import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { Collection, type Document, FindCursor, MongoServerError } from 'mongodb'
import { Registry } from 'prom-client'
import type { Replica } from '../../src/index.js'
import {
  CENSUS_COLLECTION,
  CLAIM_INDEX,
  DUTIES_COLLECTION,
  endDuties,
  PARKED_AT,
  PHASELESS,
  REPLICAS_COLLECTION,
  readDuties,
  takeDuties,
} from '../../src/lock/index.js'
import { systemStatus } from '../../src/operations/index.js'
import { Findings } from '../../src/phases/census/findings.js'
import { lookAtCensus, readCensus } from '../../src/phases/index.js'
import { replicaMetrics } from '../../src/telemetry/index.js'
import { Instruments } from '../../src/telemetry/metrics/instruments.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger, replicaOf, thing, things, thingWith } from '../support/thing.js'

describe('the census, where something is wrong', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const database = useDatabase()
  const duties = () => database.db.collection<Document & { _id: string }>(DUTIES_COLLECTION)

  async function prepared() {
    const logger = recordingLogger()
    const replica = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
      { logger },
    )
    replicas.push(replica)
    await replica.prepare()
    const runAll = () => (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    return { replica, logger, runAll }
  }

  test('one that runs for longer than its interval is left to its replica; if that is killed, another takes it', async () => {
    const { replica, runAll } = await prepared()
    await replica.tick()
    await lookAtCensus(database.db)
    await replica.tick()
    const takenBy = async (agoMs: number, fields: Document) => {
      const begunAt = new Date(Date.now() - agoMs)
      const other = { by: 'other', shift: 1, everyMs: 5_000, found: { costMs: 10 }, begunAt, ...fields }
      await duties().replaceOne({ _id: 'census of thing' }, other, { upsert: true })
      await runAll()
      return (await duties().findOne({ _id: 'census of thing' }))!['by']
    }
    expect(await takenBy(50_000, { tookMs: null })).toBe('other')
    expect(await takenBy(50_000, { tookMs: 10 })).not.toBe('other')
    expect(await takenBy(120_000, { tookMs: null })).not.toBe('other')
  })

  test('a duty that was given back is as due as it was', async () => {
    const census = [{ name: 'a', everyMs: 5_000, mostMs: 90_000 }]
    const ended = { by: 'before', tookMs: 7, begunAt: new Date(Date.now() - 50_000), everyMs: 5_000 }
    await duties().insertOne({ _id: 'a', ...ended })
    const [one, two] = [
      { by: 'one', shift: 1 },
      { by: 'two', shift: 1 },
    ] as const
    expect(await takeDuties(database.db, census, one)).toEqual(['a'])
    await endDuties(database.db, one, [], ['a'])
    expect(await duties().findOne({ _id: 'a' })).toMatchObject({ tookMs: 7, begunAt: ended.begunAt })
    expect(await takeDuties(database.db, census, two)).toEqual(['a'])
  })

  test.each<[string, Document]>([
    ['phases: [{}]', { phases: [{}] }],
    ['questions: {}', { questions: {} }],
    ['waits without a number', { waits: [{ on: 'x', phase: 'Creating', documents: {}, oldest: new Date(), ids: [] }] }],
  ])('a census with %s counts as none: status and metrics show the rest', async (_odd, fields) => {
    const { runAll } = await prepared()
    await runAll()
    const models = [thing.model]
    const census = () => database.db.collection<Document & { _id: string }>(CENSUS_COLLECTION)
    const whole = (await census().findOne({ _id: 'thing' }))!
    await census().insertOne({ ...whole, _id: 'another' })
    const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'))
    const { registry } = replicaMetrics({ db: database.db, lifecycles: [lifecycle], processMetrics: false })
    const shown = async () => (await registry.metrics()).split('\n').filter((line) => /^phaselock_\w+\{/.test(line))
    // Those of a lifecycle that another app has are not this one's to show.
    expect((await shown()).join()).not.toContain('another')
    expect((await shown()).join()).toContain('phaselock_questions_open{lifecycle="thing"} 0')
    await census().updateOne({ _id: 'thing' }, { $set: fields })
    expect((await readCensus(database.db)).census.has('thing')).toBe(false)
    expect((await systemStatus({ db: database.db, models } as never)).lifecycles).toMatchObject([{ census: null }])
    expect((await shown()).join()).toContain('phaselock_duty_age_seconds{duty="census of thing"}')
  })

  test('a gauge that fails hides no other', async () => {
    const registry = new Registry()
    const instruments = new Instruments(registry)
    instruments.gauge('bad', 'Bad', ['lifecycle'], () => Promise.reject(new Error('odd')))
    instruments.gauge('good', 'Good', ['lifecycle'], () => [[{ lifecycle: 'thing' }, 1]])
    const shown = await registry.metrics()
    expect(shown).toContain('phaselock_good{lifecycle="thing"} 1')
    expect(shown).not.toMatch(/^phaselock_bad/m)
  })

  test.each<[string, Document]>([
    ['phases: 5', { phases: 5 }],
    ['heldIn: 5', { phases: ['Creating'], heldIn: 5 }],
    ['heldIn: [null]', { phases: ['Creating'], heldIn: [null] }],
  ])('the document of a replica with %s fails neither the census nor the status', async (_odd, fields) => {
    const { runAll } = await prepared()
    const seenAt = new Date()
    const report = { seenAt, everyMs: 600_000, lifecycles: [{ name: 'thing', ...fields }] }
    const sound = { seenAt, everyMs: 600_000, lifecycles: [{ name: 'thing', phases: ['Creating'], graph: 'a' }] }
    await database.db.collection<Document & { _id: string }>(REPLICAS_COLLECTION).insertMany([
      { _id: 'odd', ...report },
      { _id: 'sound', ...sound },
    ])
    await things(database.db).insertMany(
      Array.from({ length: 1_100 }, (_, i) => ({
        ...{ _id: `a${i}`, phase: 'Creating', lockedAt: new Date(Date.now() + 3_600_000) },
      })),
    )
    await runAll()
    expect((await readCensus(database.db)).census.has('thing')).toBe(true)
    const status = await systemStatus({ db: database.db, models: [thing.model] } as never)
    expect(status.lifecycles).toMatchObject([{ census: { _id: 'thing' } }])
  })

  describe('with an array as phase in a large collection', () => {
    afterEach(() => {
      jest.restoreAllMocks()
    })
    const taken = async () => (await readCensus(database.db)).census.get('thing')
    const again = (runAll: () => Promise<void>) =>
      duties()
        .updateMany({}, { $set: { begunAt: new Date(0) } })
        .then(runAll)
    const slow = () => Promise.reject(new MongoServerError({ code: 50, message: 'operation exceeded time limit' }))
    const insert = () =>
      things(database.db).insertMany([
        { _id: 'a', phase: ['Creating'] },
        { _id: 'b', phase: 5 },
        { _id: 'c', phase: 'Creating' },
        { _id: 'd', phase: 'Wrapping' },
      ] as never[])

    test('a count or a list that takes too long says so, and the rest is counted', async () => {
      const { runAll } = await prepared()
      await insert()
      const count = Collection.prototype.countDocuments
      const slowCount = jest.spyOn(Collection.prototype, 'countDocuments').mockImplementation(function (
        this: Collection,
        filter = {},
        options = {},
      ) {
        return filter['phase']?.$type === 'array' ? slow() : count.call(this, filter, options)
      })
      await runAll()
      const rows = (await taken())!.phases
      expect(rows).toContainEqual(expect.objectContaining({ phase: '(an array)', documents: { n: 0, more: true } }))
      expect(rows).toContainEqual(expect.objectContaining({ phase: '(not a string)', documents: { n: 1 } }))
      expect(rows).toContainEqual(expect.objectContaining({ phase: 'Creating', due: { n: 1 } }))
      jest.spyOn(Collection.prototype, 'distinct').mockImplementation(slow)
      // That which took too long isn't tried each time.
      slowCount.mockClear()
      await again(runAll)
      expect((await taken())!.phases).toContainEqual(
        expect.objectContaining({ phase: '(other phases)', documents: { n: 0, more: true } }),
      )
      expect(slowCount.mock.calls.some(([filter]) => filter?.['phase']?.$type === 'array')).toBe(false)
    })

    test('documents of other types are counted in their own part of the index', async () => {
      await prepared()
      await insert()
      const where = PHASELESS['(not a string)']
      const explained = await things(database.db)
        .find(where as never)
        .hint(CLAIM_INDEX)
        .explain('executionStats')
      expect(explained['executionStats'].totalDocsExamined).toBeLessThanOrEqual(1)
    })

    test('that the index can not be asked for arrays is not remembered', async () => {
      const { runAll } = await prepared()
      await things(database.db).insertOne({ _id: 'c', phase: 'Creating' })
      const explain = jest.spyOn(FindCursor.prototype, 'explain').mockImplementation(slow as never)
      await runAll()
      explain.mockRestore()
      const asked = jest.spyOn(Collection.prototype, 'distinct')
      await again(runAll)
      expect(asked).not.toHaveBeenCalled()
    })
  })

  test('counts by cause, wait and loop are about so many where some documents were only sampled', async () => {
    const { runAll } = await prepared()
    const asleep = (n: number, prefix: string, ms: number, progress: Document, lockedAt?: Date) =>
      things(database.db).insertMany(
        Array.from({ length: n }, (_, i) => ({
          ...{ _id: `${prefix}${i}`, phase: 'Creating', lockedAt: lockedAt ?? new Date(Date.now() + 60_000 + ms) },
          progress,
        })) as never[],
      )
    const error = { name: 'Error', message: 'no printer' }
    await asleep(5, 'error', 30_000, { error, attempts: 3, steps: 100_000 })
    await asleep(4, 'wait', 30_000, { waitingFor: 'cert', waitingOn: 'cert' })
    await asleep(3, 'park', 0, { error }, PARKED_AT)
    await asleep(1_200, 'other', 1_800_000, {})
    await runAll()
    const { errors, waits, loops, parks } = (await readCensus(database.db)).census.get('thing')!
    expect([errors, waits, loops].map(([one]) => one?.documents)).toEqual([
      { n: 5, about: true },
      { n: 4, about: true },
      { n: 5, about: true },
    ])
    // All of these were read.
    expect(parks[0]?.documents).toEqual({ n: 3 })
  })

  test('the cause of the most documents is found behind thousands of others, and counted whole', () => {
    const terms = { lockTimeoutMs: 60_000, progress: 'progress' } as never
    const findings = new Findings(thing.model, terms, new Date())
    const parked = (cause: number, i: number): Document => ({
      ...{ _id: `${cause}-${i}`, phase: 'Creating', lockedAt: PARKED_AT, shape: 'object' },
      progress: { error: { name: 'Error', message: 'no', cause: cause.toString(16).padStart(12, '0') } },
    })
    const add = (documents: Document[]) =>
      findings.addParked(documents, { n: documents.length, more: false, read: documents.length })
    const many = (from: number, n: number) => Array.from({ length: n }, (_, i) => parked(from + i, 0))
    add(many(1, 3_000))
    add(Array.from({ length: 20 }, (_, i) => parked(0xc0ffee, i)))
    add(many(10_000, 3_000))
    // One of those that were left out.
    add([parked(7, 1), parked(7, 2)])
    const { parks, moreParks } = findings.lists(() => undefined)
    expect(parks.slice(0, 2)).toMatchObject([
      { cause: '000000c0ffee', documents: { n: 20 } },
      { cause: '000000000007', documents: { n: 3 } },
    ])
    expect(parks.length + moreParks).toBe(6_001)
  })

  test('a cause stays while its documents are tried again, and is the same one when it comes back within an hour', async () => {
    const { runAll } = await prepared()
    const later = new Date(Date.now() + 600_000)
    const progress = { error: { name: 'Error', message: 'no printer' }, attempts: 3 }
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', lockedAt: later, progress } as never)
    const set = (fields: Document) => things(database.db).updateOne({ _id: 'a' }, fields)
    const taken = async () => {
      await duties().updateMany({}, { $set: { begunAt: new Date(0) } })
      await runAll()
      return (await readCensus(database.db)).census.get('thing')!
    }
    const [first] = (await taken()).errors
    await set({ $set: { lockedBy: 'other~1#1.1' } })
    const held = await taken()
    expect(held.phases.find(({ phase }) => phase === 'Creating')).toMatchObject({ held: 1, failing: { n: 1 } })
    expect(held.errors).toMatchObject([{ cause: first!.cause, firstSeen: first!.firstSeen }])
    await set({ $unset: { lockedBy: 1, 'progress.error': 1 } })
    for (let i = 0; i < 2; i += 1)
      expect(await taken()).toMatchObject({ errors: [], gone: [{ cause: first!.cause, firstSeen: first!.firstSeen }] })
    await set({ $set: { progress } })
    expect(await taken()).toMatchObject({ errors: [{ firstSeen: first!.firstSeen }], gone: [] })
    await set({ $unset: { 'progress.error': 1 } })
    await taken()
    const census = database.db.collection(CENSUS_COLLECTION)
    await census.updateOne({}, { $set: { 'gone.0.lastSeen': new Date(Date.now() - 3_700_000) } })
    expect((await taken()).gone).toEqual([])
  })

  test('the error of a duty stays while it is done again, until it ends without one', async () => {
    const [census, done] = [[{ name: 'a', everyMs: 1 }], { name: 'a', tookMs: 1 }]
    const state = async () => (await readDuties(database.db)).duties.map(({ tookMs, error }) => [tookMs, error])
    const turn = async (shift: number) => {
      await duties().updateMany({}, { $set: { begunAt: new Date(0) } })
      expect(await takeDuties(database.db, census, { by: 'one', shift })).toEqual(['a'])
    }
    await turn(1)
    await endDuties(database.db, { by: 'one', shift: 1 }, [{ ...done, error: 'too slow' }])
    await turn(2)
    expect(await state()).toEqual([[null, 'too slow']])
    await endDuties(database.db, { by: 'one', shift: 2 }, [{ ...done, found: {} }])
    expect(await state()).toEqual([[1, null]])
  })
})
