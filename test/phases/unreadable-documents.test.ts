import { describe, expect, test } from '@jest/globals'
import { BSON, BSONRegExp, type Document } from 'mongodb'
import { type BrokenDocument } from '../../src/index.js'
import { LIFECYCLES_COLLECTION, PARKED_AT } from '../../src/lock/index.js'
import { explain } from '../../src/operations/index.js'
import { THINGS, useCliFolder } from '../cli/cli-process.js'
import { useDatabase } from '../support/database.js'
import { malformedBinary, useMalformed } from '../support/malformed.js'
import { recordingLogger, recordingObserver, replicaOf, thing, things, thingWith } from '../support/thing.js'

/** As PyMongo writes it; JavaScript's RegExp refuses it. */
const FOREIGN = new BSONRegExp('(?P<id>\\d+)', 'i')

describe('documents that the driver cannot read', () => {
  const database = useDatabase()
  const malformed = useMalformed(database)
  const folder = useCliFolder()
  const asItStands = { bsonRegExp: true }
  const read = async (id: string) => (await things(database.db).findOne({ _id: id }, asItStands)) as Document

  function replica(
    handler = async (_doc: unknown, step: { moveTo(to: 'Created'): never }) => step.moveTo('Created'),
    db = database.db,
  ) {
    const events: BrokenDocument[] = []
    const logger = recordingLogger()
    const steps = recordingObserver()
    const observer = { ...steps, broken: (event: BrokenDocument) => void events.push(event) }
    return { one: replicaOf(db, thingWith(handler as never), { logger, observer }), events, logger, steps }
  }

  const good = (count: number, from = 0) =>
    Array.from({ length: count }, (_, i) => ({ _id: `good-${String(from + i).padStart(4, '0')}`, phase: 'Creating' }))
  const bad = (count: number) =>
    Array.from({ length: count }, (_, i) => ({ _id: `bad-${i}`, phase: 'Creating', match: FOREIGN }))

  test.each([
    ['alone', 1, 0],
    ['among 10', 1, 10],
    ['beside 1,000 good ones', 1, 1_000],
    ['200 in front of 100 good ones', 200, 100],
  ])('%s: put aside and told, the others are Created in one claim each', async (_name, badCount, goodCount) => {
    await things(database.db).insertMany([...bad(badCount), ...good(goodCount)] as never)
    const { one, events } = replica()
    await one.runOnce()
    const created = await things(database.db).find({ phase: 'Created' }).toArray()
    expect(created).toHaveLength(goodCount)
    for (const { progress } of created) expect(progress).toMatchObject({ claims: 0, attempts: 0 })
    expect(events.map(({ reason, fate }) => [reason, fate])).toEqual(
      Array.from({ length: badCount }, () => ['unreadable', 'putAside']),
    )
    const document = await read('bad-0')
    expect(document).toMatchObject({ phase: 'Creating', lockedAt: PARKED_AT, match: FOREIGN, progress: { claims: 0 } })
    expect(document).not.toHaveProperty('lockedBy')
    expect(explain(document, thing.model, new Date(), 30_000)).toMatch(
      /^Parked because 'the driver can't read it \(Invalid regular expression/,
    )
  })

  test('two replicas: each innocent once, the culprit told once', async () => {
    await things(database.db).insertMany([...good(300), ...bad(1), ...good(300, 300)] as never)
    const two = [replica(), replica()]
    await Promise.all(two.map(({ one }) => one.runOnce()))
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(600)
    expect(two.flatMap(({ events }) => events)).toHaveLength(1)
    const moves = two.flatMap(({ steps }) => steps.steps).filter(({ outcome }) => outcome === 'moveTo')
    expect(new Set(moves.map(({ id }) => id)).size).toBe(600)
    expect(moves).toHaveLength(600)
  })

  test.each(['lockedAt', 'lockedBy', 'updatedAt', 'createdAt', 'fence', 'state'])(
    'in %s: the others go on',
    async (field) => {
      await things(database.db).insertMany([{ _id: 'bad', phase: 'Creating', [field]: FOREIGN }, ...good(20)] as never)
      const { one, events } = replica()
      await one.runOnce()
      expect(await things(database.db).countDocuments({ _id: /^good/, phase: 'Created' })).toBe(20)
      expect(new Set(events.map(({ id }) => id))).toEqual(new Set(['bad']))
    },
  )

  test.each(['lockedAt', 'lockedBy', 'fence', 'updatedAt', 'createdAt', 'phase', 'state', 'progress', 'own'])(
    'binary of subtype 2 with a wrong length in %s: the others go on',
    async (field) => {
      await things(database.db).insertMany([
        { _id: 'bad', phase: 'Creating', [field]: malformedBinary() },
        ...good(20),
      ] as never)
      const { one, logger } = replica(undefined, malformed.db)
      await one.runOnce()
      expect(await things(database.db).countDocuments({ _id: /^good/, phase: 'Created' })).toBe(20)
      expect(logger.lines.filter(({ level }) => level === 'warn').length).toBeGreaterThan(0)
      expect(JSON.stringify(logger.lines)).not.toMatch(/the database failed/)
    },
  )

  test('such binary in the count of claims, in a final document, and in an _id: the others go on', async () => {
    const final = { _id: 'final', phase: 'Deleted', progress: 'mine', createdAt: malformedBinary() }
    const counted = { _id: 'counted', phase: 'Creating', progress: { claims: malformedBinary() } }
    await things(database.db).insertMany([final, counted, ...good(20)] as never)
    await replica(undefined, malformed.db).one.runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(21)
    await things(database.db).insertMany([{ _id: malformedBinary(), phase: 'Creating' }, ...good(20, 20)] as never)
    const { one, logger } = replica(undefined, malformed.db)
    await one.prepare()
    await one.tick()
    await one.idle()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(41)
    expect(JSON.stringify(logger.lines)).not.toMatch(/the database failed/)
  })

  test.each(['lockTimeout', 'handledAt', 'replicas', 'phases', 'mine'])(
    'such binary, or a foreign regular expression, in %s of a lifecycle’s entry: it goes on',
    async (field) => {
      const lifecycles = database.db.collection<{ _id: string }>(LIFECYCLES_COLLECTION)
      for (const [i, value] of [malformedBinary(), FOREIGN].entries()) {
        const one = replica(undefined, malformed.db).one
        await one.prepare()
        await lifecycles.updateOne({ _id: 'thing' }, { $set: { [field]: value } })
        await lifecycles.insertOne({ _id: `other ${i}`, collection: 'Thing', [field]: value } as never)
        await things(database.db).insertMany(good(10, 10 * i) as never)
        await one.runOnce()
        expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(10 * (i + 1))
        const next = replica(undefined, malformed.db).one
        await next.prepare()
      }
    },
  )

  test('in a nested _id: Created like the others, and in progress: put aside', async () => {
    const documents = [
      { _id: { at: FOREIGN }, phase: 'Creating' },
      { _id: 'mine', phase: 'Creating', progress: { mine: FOREIGN } },
      ...good(20),
    ]
    await things(database.db).insertMany(documents as never)
    const { one, events } = replica()
    await one.runOnce()
    expect(await things(database.db).countDocuments({ _id: /^good/, phase: 'Created' })).toBe(20)
    expect(events.map(({ reason }) => reason)).toEqual(['unreadable', 'unreadable'])
    expect(await read('mine')).toMatchObject({ lockedAt: PARKED_AT, progress: { mine: FOREIGN } })
  })

  test('written under a chain of steps: parked, what the others do is recorded', async () => {
    await things(database.db).insertMany(good(10) as never)
    const clock = { now: () => new Date(), monotonicMs: () => performance.now() + shift }
    let shift = 0
    const handler = async (doc: Document, step: never) => {
      const { again, moveTo, name } = step as { again(o?: object): never; moveTo(to: string): never; name?: string }
      if (name) return moveTo.call(step, 'Created')
      if (doc['_id'] === 'good-0003') {
        await things(database.db).updateOne({ _id: 'good-0003' }, { $set: { match: FOREIGN } })
      }
      shift += 1_100
      return again.call(step, { step: 'next' })
    }
    await replicaOf(database.db, thingWith(handler as never), { clock }).runOnce()
    expect(await things(database.db).countDocuments({ phase: 'Created' })).toBe(9)
    expect(await read('good-0003')).toMatchObject({ phase: 'Creating', lockedAt: PARKED_AT, match: FOREIGN })
  })

  test('unparked when its owner has mended it: goes on', async () => {
    await things(database.db).insertMany(bad(1) as never)
    const { one } = replica()
    await one.runOnce()
    const owner = thing
      .handle({ Creating: async (_d, s) => s.again(), Deleting: async (_d, s) => s.again() })
      .attach(database.db)
      .owner()
    expect(await owner.find('bad-0')).toMatchObject({ match: FOREIGN })
    expect(await owner.wake('bad-0')).toBe('parked')
    await things(database.db).updateOne({ _id: 'bad-0' }, { $set: { match: /\d+/ } })
    expect(await owner.unpark('bad-0')).toBe('done')
    await one.runOnce()
    expect(await read('bad-0')).toMatchObject({ phase: 'Created' })
  })

  test('a client with bsonRegExp: true reads it, and a round trip changes nothing', async () => {
    const { client } = database
    const db = client.db(database.db.databaseName, { bsonRegExp: true })
    await things(db).insertMany([...bad(1), ...good(10)] as never)
    const one = replicaOf(
      db,
      thingWith(async (doc, step) => step.moveTo('Created', { set: { copy: (doc as Document)['match'] } as never })),
    )
    await one.runOnce()
    expect(await things(db).countDocuments({ phase: 'Created' })).toBe(11)
    const { match, copy } = await read('bad-0')
    expect(BSON.serialize({ v: copy })).toEqual(BSON.serialize({ v: match }))
  })

  test('show and list say it', async () => {
    await things(database.db).insertMany([...bad(1), ...good(1)] as never)
    const { one } = replica()
    await one.runOnce()
    const cli = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri, PHASELOCK_LIFECYCLES: THINGS })
    expect((await cli('show', 'bad-0')).out).toMatch(/the driver can't read it/)
    expect((await cli('list', 'thing')).out).toMatch(/bad-0/)
  })
})
