import { describe, expect, test } from '@jest/globals'
import {
  Binary,
  BSON,
  Code,
  Decimal128,
  type Document,
  Double,
  Long,
  MaxKey,
  MinKey,
  ObjectId,
  Timestamp,
  UUID,
} from 'mongodb'
import { type BrokenDocument } from '../../src/index.js'
import { candidateCursor, Looks, PARKED_AT, ServerClock, TASK_LOCK_INIT_TIME } from '../../src/lock/index.js'
import { explain } from '../../src/operations/index.js'
import { systemClock } from '../../src/time/index.js'
import { serverNow } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingLogger, replicaOf, thing, things, thingWith } from '../support/thing.js'

const HEALTHY = 100
const EPOCH = TASK_LOCK_INIT_TIME

/** A value of every BSON type that a field can have. */
const EVERY_TYPE: [string, unknown][] = [
  ['a string', 'x'],
  ['a number', 4],
  ['NaN', Number.NaN],
  ['a Long', Long.MAX_VALUE],
  ['a Decimal128', Decimal128.fromString('1.5')],
  ['a boolean', true],
  ['null', null],
  ['an object', { a: 1 }],
  ['an array', ['x', 1]],
  ['an empty array', []],
  ['a binary', new Binary(Buffer.from('x'))],
  ['an ObjectId', new ObjectId()],
  ['a timestamp', new Timestamp({ t: 1, i: 1 })],
  ['a regular expression', /x/],
  ['code', new Code('x')],
  ['a MinKey', new MinKey()],
  ['a MaxKey', new MaxKey()],
  ['a date', new Date('2020-01-01')],
]

const literals = (fields: Document) =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, { $literal: value }]))

describe('a bad document in front of 100 healthy ones', () => {
  const database = useDatabase()

  /** Stores the bad documents and 100 healthy ones that sort behind them, and lets one replica work them off. */
  async function workOff(bad: readonly Document[], before: () => Promise<unknown> = async () => {}) {
    const { db } = database
    const events: BrokenDocument[] = []
    const logger = recordingLogger()
    const replica = replicaOf(
      db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
      { logger, observer: { broken: (event) => void events.push(event) } },
    )
    await replica.prepare()
    await before()
    const documents = things(db)
    for (const { _id, ...fields } of bad) {
      // The driver would put an ObjectId in the place of a null.
      await documents.updateOne({ _id }, [{ $set: literals({ phase: 'Creating', ...fields }) }], { upsert: true })
    }
    const healthy = Array.from({ length: HEALTHY }, (_, i) => ({
      _id: `healthy-${i}`,
      phase: 'Creating',
      lockedAt: EPOCH,
      updatedAt: new Date(),
    }))
    await documents.insertMany(healthy)
    const running = replica.runOnce()
    const done = { _id: /^healthy/, phase: 'Created' } as never
    await eventually(async () => expect(await documents.countDocuments(done)).toBe(HEALTHY), { timeoutMs: 90_000 })
    await running
    return { replica, events, logger }
  }

  const read = async (id: unknown = 'bad') => (await things(database.db).findOne({ _id: id as never })) as Document
  const shown = (document: Document) => explain(document, thing.model, new Date(), 30_000)

  describe('lockedAt', () => {
    test.each(EVERY_TYPE)('is %s: claimed or mended, and Created like the others', async (_name, value) => {
      const { events } = await workOff([{ _id: 'bad', lockedAt: value, mine: { keep: 1 } }])
      const document = await read()
      expect(document).toMatchObject({ phase: 'Created', lockedAt: EPOCH, mine: { keep: 1 } })
      expect(document['progress']).toMatchObject({ claims: 0, attempts: 0 })
      if (value === null || value instanceof Date) expect(events).toEqual([])
      else expect(events).toMatchObject([{ lifecycle: 'thing', id: 'bad', reason: 'lockedAt', fate: 'mended' }])
    })

    test('is an array with a late element, which no claim finds: the repair look does', async () => {
      const late = [new Date('2999-01-01'), new Date()]
      const { events } = await workOff([{ _id: 'bad', lockedAt: late }])
      expect(await read()).toMatchObject({ phase: 'Created' })
      expect(events).toMatchObject([{ reason: 'lockedAt', found: 'an array', fate: 'mended' }])
    })

    test('stays so while somebody holds it: a lease from now, which runs out by itself', async () => {
      const before = await serverNow(database.db.collection('Thing'))
      await workOff([{ _id: 'bad', lockedAt: new Timestamp({ t: 1, i: 1 }), lockedBy: 'other~1#1.1' }])
      const document = await read()
      expect(document).toMatchObject({ phase: 'Creating', lockedBy: 'other~1#1.1' })
      expect(document['lockedAt'].getTime()).toBeGreaterThanOrEqual(before.getTime())
    })

    test('is in the year 2200: a legal sleep, honoured and shown', async () => {
      const lockedAt = new Date('2200-01-01')
      const { events } = await workOff([{ _id: 'bad', lockedAt }])
      expect(await read()).toEqual({ _id: 'bad', phase: 'Creating', lockedAt })
      expect(shown(await read())).toMatch(/^Sleeps, due in \d+ d \(2200-01-01T00:00:30.000Z\)/)
      expect(events).toEqual([])
    })

    test('is a date after 9999, also one that JavaScript cannot read: parked, and unpark works', async () => {
      const far = async (id: string, ms: string) =>
        things(database.db).updateOne(
          { _id: id },
          [{ $set: { phase: 'Creating', lockedAt: { $toDate: Long.fromString(ms) }, progress: {} } }],
          { upsert: true },
        )
      const { events, replica } = await workOff([], async () => {
        await far('later', '300000000000000')
        await far('unreadable', '9000000000000000')
        expect(shown(await read('later'))).toMatch(/^Parked because/)
        expect(shown(await read('unreadable'))).toMatch(/'lockedAt' is a date outside the range of JavaScript/)
      })
      for (const id of ['later', 'unreadable']) {
        expect(await read(id)).toMatchObject({ phase: 'Creating', lockedAt: PARKED_AT })
      }
      expect(events.map(({ id, found }) => [id, found])).toEqual([
        ['later', 'a date after 9999-12-31'],
        ['unreadable', 'a date after 9999-12-31'],
      ])
      const owner = thing
        .handle({ Creating: async (_d, s) => s.again(), Deleting: async (_d, s) => s.again() })
        .attach(database.db)
        .owner()
      expect(await owner.unpark('later')).toBe('done')
      await replica.runOnce()
      expect(await read('later')).toMatchObject({ phase: 'Created' })
    })

    test('is a date before all that JavaScript can read: due like any other', async () => {
      await workOff([], async () => {
        await things(database.db).updateOne(
          { _id: 'bad' },
          [{ $set: { phase: 'Creating', lockedAt: { $toDate: Long.fromString('-9000000000000000') } } }],
          { upsert: true },
        )
        expect(shown(await read())).toMatch(/outside the range of JavaScript/)
      })
      expect(await read()).toMatchObject({ phase: 'Created' })
    })
  })

  describe.each(['updatedAt', 'createdAt', 'fence', 'lockedBy'])('%s', (field) => {
    test('of every type: all are Created, an owner keeps what is theirs', async () => {
      const bad = EVERY_TYPE.map(([name, value]) => ({ _id: name, [field]: value }))
      const { events } = await workOff(bad)
      for (const [name, value] of EVERY_TYPE) {
        const document = await read(name)
        expect(document).toMatchObject({ phase: 'Created', lockedAt: EPOCH, updatedAt: expect.any(Date) })
        expect(Number.isSafeInteger(document['fence'])).toBe(true)
        expect(document).not.toHaveProperty('lockedBy')
        if (field === 'createdAt' && value !== null) expect(document['createdAt']).toEqual((await read(name))[field])
      }
      const told = new Set(events.map(({ id }) => id))
      expect(told.has('an object')).toBe(true)
      expect(told.has('null')).toBe(false)
      for (const event of events) expect(event.reason).toBe(field)
    })
  })

  describe('progress', () => {
    const isOurs = (value: unknown) => value === null || (value as Document)?.['a'] === 1
    test('of every type: an object is shared, anything else stays untouched and is put aside', async () => {
      const { events, logger } = await workOff(
        EVERY_TYPE.map(([name, value]) => ({ _id: name, progress: value, n: 7 })),
      )
      for (const [name, value] of EVERY_TYPE) {
        const document = await read(name)
        if (isOurs(value)) {
          expect(document).toMatchObject({ phase: 'Created', n: 7 })
          continue
        }
        const raw = BSON.serialize({ progress: value })
        expect(BSON.serialize({ progress: document['progress'] })).toEqual(BSON.serialize(BSON.deserialize(raw)))
        expect(Object.keys(document).sort()).toEqual(['_id', 'lockedAt', 'n', 'phase', 'progress'])
        expect(document).toMatchObject({ phase: 'Creating', lockedAt: PARKED_AT, n: 7 })
        expect(shown(document)).toMatch(
          /^Its shape is broken: 'progress' is .*, expected an object written by Phaselock/,
        )
      }
      const aside = EVERY_TYPE.filter(([, value]) => !isOurs(value)).length
      expect(events.filter(({ fate }) => fate === 'putAside')).toHaveLength(aside)
      // Bounded: ten lines a minute, and one that counts the others.
      expect(logger.lines.filter((line) => line.message.includes('put aside')).length).toBeLessThanOrEqual(11)
    })

    test("has an owner's fields under odd names, and ours with other types in them: mended or kept", async () => {
      const fields = [
        'since',
        'at',
        'attempts',
        'claims',
        'step',
        'history',
        'waitingFor',
        'error',
        'resumeAt',
        'endedBy',
      ]
      const bad = fields.flatMap((field) =>
        EVERY_TYPE.map(([name, value]) => ({ _id: `${field} ${name}`, progress: { [field]: value, percent: 40 } })),
      )
      await workOff([...bad, { _id: 'names', progress: { 'a.b': 1, $c: 2, '': 3 } }])
      expect(
        await things(database.db)
          .find({ phase: { $ne: 'Created' } })
          .toArray(),
      ).toEqual([])
      expect(await things(database.db).countDocuments({ 'progress.percent': 40 })).toBe(bad.length)
      expect((await read('names'))['progress']).toMatchObject({ 'a.b': 1, $c: 2, '': 3 })
    })
  })

  describe('_id', () => {
    const ids: [string, unknown][] = [
      ...EVERY_TYPE.filter(([, value]) => !Array.isArray(value) && !(value instanceof RegExp)),
      ['a UUID', new UUID()],
      ['a nested document', { tenant: { name: 'x' }, at: new Date(0), n: Double.fromString('1.5') }],
      ['an empty document', {}],
      ['zero', 0],
      ['minus one and a half', -1.5],
      ['an empty text', ''],
    ]
    test('of every type, null and nested documents too: Created like the others', async () => {
      await workOff(ids.map(([, id]) => ({ _id: id })))
      for (const [name, id] of ids) expect([name, (await read(id))?.['phase']]).toEqual([name, 'Created'])
    })

    test('that the driver reads as another: put aside and told, no hot loop', async () => {
      const { events } = await workOff([], async () => {
        for (let i = 0; i < 60; i += 1) {
          const id = new Map<string, unknown>([
            ['b', i],
            ['1', 2],
          ])
          await things(database.db).insertOne({ _id: id as never, phase: 'Creating' })
        }
      })
      expect(await things(database.db).countDocuments({ phase: 'Creating', lockedAt: PARKED_AT })).toBe(60)
      expect(events.filter(({ reason, fate }) => reason === '_id' && fate === 'putAside')).toHaveLength(60)
    })
  })

  describe('phase', () => {
    test('is an array or a number: never claimed, told and shown', async () => {
      const { events, logger } = await workOff([
        { _id: 'array', phase: ['Creating'] },
        { _id: 'number', phase: 5 },
        { _id: 'null', phase: null },
      ])
      expect(await read('array')).toEqual({ _id: 'array', phase: ['Creating'], lockedAt: PARKED_AT })
      expect(await read('number')).toEqual({ _id: 'number', phase: 5 })
      for (const id of ['array', 'number', 'null']) {
        expect(shown(await read(id))).toMatch(
          /^Its shape is broken: 'phase' is (an array|a number|null), expected a string/,
        )
      }
      expect(events.map(({ id, reason, fate }) => [id, reason, fate])).toContainEqual(['array', 'phase', 'putAside'])
      const ofPhase = events.filter(({ reason, fate }) => reason === 'phase' && fate === 'leftAlone')
      expect(ofPhase.map(({ found }) => found).sort()).toEqual(['a number', 'null'])
      expect(logger.lines.map((line) => line.message)).toContainEqual(
        'thing: documents whose phase is a number are left alone; expected a string',
      )
    })

    test('is all there is: enough', async () => {
      const { events } = await workOff([{ _id: 'bad' }])
      expect(await read()).toMatchObject({ phase: 'Created', createdAt: expect.any(Date), fence: expect.any(Number) })
      expect(events).toEqual([])
    })
  })

  test('an array in lockedAt: keys examined before, during and after', async () => {
    const { replica } = await workOff([], async () => {
      const asleep = Array.from({ length: 3_000 }, (_, i) => ({
        _id: `asleep-${i}`,
        phase: 'Creating',
        lockedAt: new Date('2999-01-01'),
      }))
      await things(database.db).insertMany(asleep)
    })
    const collection = database.db.collection('Thing')
    const keys = async () => {
      const serverClock = new ServerClock(systemClock)
      const sentAtMs = systemClock.monotonicMs()
      serverClock.saw(await serverNow(collection), sentAtMs)
      const terms = replica.terms(thing.model)
      const reading = { limit: 500, dueBound: serverClock.dueBound(30_000)! }
      const [fresh, woken] = (['fresh', 'woken'] as const).map((range) =>
        candidateCursor(collection, terms, 'Creating', range, reading),
      )
      const parts = new Looks(database.db, systemClock, serverClock).queries({
        lifecycle: 'thing',
        collection: 'Thing',
        terms,
        phases: ['Creating'],
        rules: [],
      })
      const look = collection.aggregate([{ $match: parts[0]!.match }, { $limit: 1 }])
      const explained = await Promise.all([fresh!, woken!, look].map((cursor) => cursor.explain('executionStats')))
      return explained.map((one) => one['executionStats'].totalKeysExamined as number)
    }
    expect(await keys()).toEqual([0, 0, 0])
    const late = new Date('2999-01-01')
    await things(database.db).insertMany([
      { _id: 'found', phase: 'Creating', lockedAt: [EPOCH, late] },
      { _id: 'hidden', phase: 'Creating', lockedAt: [late] },
    ])
    const during = await keys()
    for (const count of during) expect(count).toBeLessThanOrEqual(2)
    // Another replica: this one has just had its look for such documents.
    const other = replicaOf(
      database.db,
      thingWith(async (_doc, step) => step.moveTo('Created')),
    )
    await other.runOnce()
    for (const id of ['found', 'hidden']) expect(await read(id)).toMatchObject({ phase: 'Created', lockedAt: EPOCH })
    const after = await keys()
    for (const count of after) expect(count).toBeLessThanOrEqual(1)
    await replica.runOnce()
  })
})
