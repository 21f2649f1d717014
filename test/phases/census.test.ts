import { afterEach, describe, expect, test } from '@jest/globals'
import { BSON, type Document, MongoClient } from 'mongodb'
import { type Handler, Replica } from '../../src/index.js'
import {
  CENSUS_COLLECTION,
  CLAIM_INDEX,
  DUTIES_COLLECTION,
  LIFECYCLES_COLLECTION,
  PARKED_AT,
  takeDuties,
} from '../../src/lock/index.js'
import { countPhases, systemStatus } from '../../src/operations/index.js'
import { censusEvery, censusEveryMs } from '../../src/phases/census/interval.js'
import { storeCensuses } from '../../src/phases/census/store.js'
import { lookAtCensus, readCensus } from '../../src/phases/index.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger, replicaOf, type Thing, thing, thingOf, things, thingWith } from '../support/thing.js'

describe('the census', () => {
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const database = useDatabase()
  const system = () => ({ db: database.db, models: [thing.model] })

  async function prepared(
    creating: Handler<'Created' | 'Deleting', Thing> = async (_doc, step) => step.moveTo('Created'),
  ) {
    const logger = recordingLogger()
    const replica = replicaOf(database.db, thingWith(creating), { logger })
    replicas.push(replica)
    await replica.prepare()
    const runAll = () => (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
    return { replica, logger, runAll }
  }
  const insert = (n: number, fields: Document, prefix: string) =>
    things(database.db).insertMany(
      Array.from({ length: n }, (_, i) => ({ _id: `${prefix}${i}`, phase: 'Creating', ...fields })),
    )
  const fresh = async () => {
    const rows = await countPhases(system(), { fresh: true })
    return (phase: string) => rows.find((row) => row.phase === phase)
  }
  const inAnHour = () => new Date(Date.now() + 3_600_000)

  test.each([[9_999], [10_000], [10_001]])('%d documents of a phase: exact up to 10,000, and then more', async (n) => {
    await things(database.db).createIndex(CLAIM_INDEX)
    await insert(n, { phase: 'Created', lockedAt: new Date(0) }, 'c')
    await insert(n, { lockedAt: new Date(0), updatedAt: new Date() }, 'd')
    const row = await fresh()
    const expected = n > 10_000 ? { n: 10_000, more: true } : { n }
    expect(row('Created')).toMatchObject({ documents: expected })
    expect(row('Creating')).toMatchObject({ documents: expected, due: expected, sleeping: { n: 0 } })
  })

  test('unknown phases, arrays and documents without a phase are counted, each once; a broken lockedAt is not due', async () => {
    await prepared()
    await insert(500, { phase: 'Wrapping' }, 'w')
    await things(database.db).insertMany([
      { _id: 'fine', phase: 'Creating' },
      { _id: 'parked', phase: 'Wrapping', lockedAt: PARKED_AT },
      { _id: 'none' },
      { _id: 'null', phase: null },
      { _id: 'five', phase: 5 },
      { _id: 'late', phase: 'Creating', lockedAt: /x/ },
    ] as never[])
    const known = async () => {
      const row = await fresh()
      expect(row('Wrapping')).toMatchObject({ kind: 'unknown', documents: { n: 501 }, parked: { n: 1 } })
      expect(row('(missing)')).toMatchObject({ documents: { n: 2 } })
      expect(row('(not a string)')).toMatchObject({ documents: { n: 1 } })
      expect(row('Creating')).toMatchObject({ due: { n: 1 } })
      return row
    }
    expect((await known())('(an array)')).toBeUndefined()
    await things(database.db).insertOne({ _id: 'array', phase: ['Creating', 'Wrapping'] } as never)
    expect((await known())('(an array)')).toMatchObject({ kind: 'unknown', documents: { n: 1 } })
    const { problems } = await systemStatus(system() as never, { fresh: true })
    expect(problems).toEqual(
      expect.arrayContaining([
        expect.stringMatching(
          /^thing: 501 documents whose phase the lifecycle doesn't have: Wrapping \(phaselock causes \w+\)$/,
        ),
        expect.stringMatching(/^thing: 1 document whose lockedAt can't be used: it is a regular expression \(/),
      ]),
    )
  })

  test('of 1,000 sleeping documents each is read: what they do is exact; of 6,000 a sample shows the shares', async () => {
    await prepared()
    const failing = (i: number) => ({ error: { name: 'Error', message: `no printer p${i}` }, attempts: 3 })
    const asleep = (n: number, prefix: string) =>
      things(database.db).insertMany(
        Array.from({ length: n }, (_, i) => ({
          ...{ _id: `${prefix}${i}`, phase: 'Creating', lockedAt: new Date(Date.now() + 60_000 + i * 3_000) },
          progress: i % 2 === 0 ? failing(i) : { waitingFor: `cert ${i}`, waitingOn: 'cert', at: new Date(0) },
        })) as never[],
      )
    await asleep(1_000, 'a')
    expect((await fresh())('Creating')).toMatchObject({
      ...{ documents: { n: 1_000 }, sleeping: { n: 1_000 }, failing: { n: 500 }, waiting: { n: 500 }, held: 0 },
    })
    await asleep(5_000, 'b')
    const row = (await fresh())('Creating')!
    expect(row).toMatchObject({ documents: { n: 6_000 }, due: { n: 0 }, sleeping: { n: 6_000, about: true } })
    for (const { n, about } of [row.failing, row.waiting]) {
      expect(about).toBe(true)
      expect(n).toBeGreaterThan(2_500)
      expect(n).toBeLessThan(3_500)
    }
    const { problems } = await systemStatus(system() as never, { fresh: true })
    expect(problems.join()).toMatch(/thing: ~\d,\d{3} documents failing in Creating: .*no printer/)
  })

  test('one that a person takes reads no piece in vain that the last one found large', async () => {
    const { runAll } = await prepared()
    await insert(1_100, { lockedAt: new Date(0), updatedAt: new Date() }, 'd')
    await runAll()
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    const surveys: string[] = []
    client.on('commandStarted', ({ command }) => {
      const text = JSON.stringify(command)
      if (text.includes('neverDue')) surveys.push(text)
    })
    const db = client.db(database.db.databaseName)
    const rows = await countPhases({ db, models: [thing.model] }, { fresh: true })
    await client.close()
    expect(rows.find(({ phase }) => phase === 'Creating')).toMatchObject({ due: { n: 1_100 } })
    expect(surveys).toEqual([expect.not.stringContaining('free Creating')])
    expect(surveys).toEqual([expect.stringContaining('later Creating')])
  })

  test('held documents are those that replicas report where there are too many to read', async () => {
    await prepared()
    await insert(1_200, { lockedAt: inAnHour() }, 'a')
    const report = { name: 'thing', phases: ['Creating', 'Deleting'], held: 7, heldIn: [{ phase: 'Creating', n: 7 }] }
    const beat = { _id: 'r', seenAt: new Date(), everyMs: 600_000, lifecycles: [report] }
    await database.db.collection<Document & { _id: string }>('phaselock.replicas').insertOne(beat)
    expect((await fresh())('Creating')).toMatchObject({ held: 7, sleeping: { n: 1_200, about: true } })
  })

  test('holds 64 KB at most, with 10,000 causes and long names and ids', async () => {
    const { runAll } = await prepared()
    const word = (i: number) => Array.from(String(i), (digit) => 'abcdefghij'[Number(digit)]).join('')
    const parked = Array.from({ length: 10_000 }, (_, i) => ({
      ...{ _id: `${i}${'x'.repeat(190)}`, phase: 'Creating', lockedAt: PARKED_AT },
      progress: { error: { name: 'Error', message: `${word(i)} ${'broken '.repeat(40)}` } },
    }))
    await things(database.db).insertMany(parked as never[])
    await things(database.db).insertMany(
      Array.from({ length: 300 }, (_, i) => ({ _id: `u${i}`, phase: `${word(i)}${'y'.repeat(500)}` })) as never[],
    )
    await runAll()
    const stored = await database.db.collection(CENSUS_COLLECTION).findOne({ _id: 'thing' as never })
    expect(BSON.calculateObjectSize(stored!)).toBeLessThanOrEqual(65_536)
    const census = (await readCensus(database.db)).census.get('thing')!
    expect(census.phases).toContainEqual(expect.objectContaining({ phase: 'Creating', parked: { n: 10_000 } }))
    expect(census.parks.length).toBeGreaterThan(5)
    expect(census.moreParks).toBeGreaterThan(300)
    expect(census.phases).toContainEqual(
      expect.objectContaining({ phase: '(250 further phases)', documents: { n: 250, more: true } }),
    )
  })

  describe('as a duty', () => {
    const duties = () => database.db.collection<Document & { _id: string }>(DUTIES_COLLECTION)
    const census = async () => (await readCensus(database.db)).census.get('thing')

    test('is taken by one of two replicas within its interval, and an overtaken one stores nothing', async () => {
      const [one, two] = [await prepared(), await prepared()]
      await Promise.all([one.runAll(), two.runAll()])
      const first = (await census())!
      expect(first).toMatchObject({ _id: 'thing', everyMs: 300_000 })
      expect([one, two].map(({ replica }) => replica.status().identity)).toContain(first.by)
      await one.runAll()
      await two.runAll()
      expect((await census())!.at).toEqual(first.at)
      // Its turn is over: another has the duty.
      await duties().updateOne({ _id: 'census of thing' }, { $set: { by: 'other', shift: 1, tookMs: null } })
      const store = (fields: object, by = 'other') => {
        const taken = { duty: 'census of thing', census: { ...first, ...fields } }
        return storeCensuses(database.db, [taken], { by, shift: 1 })
      }
      await store({ at: new Date(), tookMs: 77 }, first.by)
      expect((await census())!.at).toEqual(first.at)
      await store({ at: new Date(), tookMs: 77 })
      expect((await census())!.tookMs).toBe(77)
      // One that began earlier gives no newer one away; after a step back of the clock the newer one goes.
      await store({ tookMs: 78 })
      expect((await census())!.tookMs).toBe(77)
      await store({ at: inAnHour(), tookMs: 79 })
      await store({ tookMs: 80 })
      expect((await census())!.tookMs).toBe(80)
    })

    test.each([
      [0, undefined, 300_000],
      [10_000, undefined, 300_000],
      [0, 'people', 5_000],
      [100, 'people', 5_000],
      [400, 'people', 12_000],
      [400, 'metrics', 40_000],
      [20, 'metrics', 5_000],
      [9_000, 'metrics', 300_000],
      [60_000, 'people', 300_000],
    ] as const)(
      'that cost %d ms and is looked at by %s is due each %d ms, for the server too',
      async (costMs, reader, everyMs) => {
        expect(censusEveryMs(costMs, reader, 300_000)).toBe(everyMs)
        await duties().insertOne({ _id: 'a', found: { costMs }, tookMs: 3, begunAt: new Date(0) })
        await takeDuties(database.db, [{ name: 'a', everyMs: censusEvery(reader, 300_000) }], { by: 'x', shift: 1 })
        expect((await duties().findOne({ _id: 'a' }))!['everyMs']).toBe(everyMs)
      },
    )

    test('comes again within seconds while somebody looks, and rarely when nobody does', async () => {
      const { replica, runAll } = await prepared()
      await replica.tick()
      await runAll()
      const { at } = (await census())!
      const backDated = (ms: number) =>
        duties().updateMany({}, [{ $set: { begunAt: { $subtract: ['$begunAt', ms] } } }])
      await backDated(60_000)
      await runAll()
      expect((await census())!.at).toEqual(at)
      await lookAtCensus(database.db)
      const looked = () => database.db.collection(LIFECYCLES_COLLECTION).findOne({})
      const stamp = (await looked())!['lookedAt']
      expect(stamp).toBeInstanceOf(Date)
      await lookAtCensus(database.db)
      expect((await looked())!['lookedAt']).toEqual(stamp)
      await replica.tick()
      await runAll()
      expect((await census())!.at.getTime()).toBeGreaterThan(at.getTime())
      expect((await duties().findOne({ _id: 'census of thing' }))!['everyMs']).toBeLessThan(300_000)
    })

    test('beside an older replica: its sweep is no census, and no problem', async () => {
      const { runAll } = await prepared()
      const found = { lifecycle: 'thing', overdue: [], orphans: 0, waiting: [], asking: 0 }
      await duties().insertOne({ _id: 'sweep of thing', by: 'old', everyMs: 300_000, begunAt: new Date(0), found })
      const { lifecycles, problems } = await systemStatus(system() as never)
      expect(lifecycles).toMatchObject([
        { census: null, whyNone: expect.stringContaining('no replica has taken one yet') },
      ])
      expect(problems.join()).not.toContain('sweep')
      await runAll()
      expect((await systemStatus(system() as never)).lifecycles).toMatchObject([
        { census: { _id: 'thing' }, whyNone: null },
      ])
    })

    test('of a lifecycle that fails is said, and those of others are taken', async () => {
      const logger = recordingLogger()
      const other = thingOf({ name: 'other', collection: 'Other' })
      const move: Handler<'Created' | 'Deleting', Thing> = async (_doc, step) => step.moveTo('Created')
      const lifecycles = [thingWith(move), thingWith(move, other)]
      const replica = new Replica({ db: database.db, lifecycles, logger })
      replicas.push(replica)
      await replica.prepare()
      await insert(1, {}, 'a')
      await things(database.db).dropIndexes()
      await (replica as never as { duties: { runAll(): Promise<void> } }).duties.runAll()
      const { census: taken } = await readCensus(database.db)
      expect([...taken.keys()]).toEqual(['other'])
      const status = await systemStatus({ db: database.db, models: [thing.model, other.model] } as never)
      expect(status.lifecycles.map(({ whyNone }) => whyNone === null)).toEqual([false, true])
      await replica.start()
      const { problems } = await systemStatus({ db: database.db, models: [thing.model, other.model] } as never)
      expect(problems.join()).toMatch(/the duty 'census of thing' failed: Thing has no index/)
    })
  })

  test('keeps when it first saw a cause', async () => {
    const { runAll } = await prepared()
    await insert(2, { lockedAt: PARKED_AT, progress: { error: { name: 'Error', message: 'out of paper' } } }, 'p')
    await runAll()
    const [park] = (await readCensus(database.db)).census.get('thing')!.parks
    expect(park).toMatchObject({ documents: { n: 2 }, phases: ['Creating'], ids: ['p0', 'p1'] })
    await database.db.collection(DUTIES_COLLECTION).updateMany({}, { $set: { begunAt: new Date(0) } })
    await insert(1, { lockedAt: PARKED_AT, progress: { error: { name: 'Error', message: 'out of paper' } } }, 'q')
    await runAll()
    const [again] = (await readCensus(database.db)).census.get('thing')!.parks
    expect(again).toMatchObject({ documents: { n: 3 }, firstSeen: park!.firstSeen, cause: park!.cause })
  })
})
