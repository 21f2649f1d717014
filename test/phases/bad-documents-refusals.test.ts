import { describe, expect, test } from '@jest/globals'
import { BSON, type Document } from 'mongodb'
import type { BrokenDocument, ReplicaOptions } from '../../src/index.js'
import { PARKED_AT, TASK_LOCK_INIT_TIME, termsOf, whyNotClaimable } from '../../src/lock/index.js'
import { replicaMetrics } from '../../src/telemetry/index.js'
import { eventually, useDatabase } from '../support/database.js'
import {
  backDate,
  type CreatingHandler,
  recordingLogger,
  replicaOf,
  ShiftedClock,
  thingOf,
  things,
  thingWith,
} from '../support/thing.js'

const HEALTHY = 100
const LIMIT = 16 * 1024 * 1024
/** Longer than a document is left alone that refuses writes, however often it has refused: a slow run may have tried it more often. */
const LONGEST_PAUSE_MS = 600_000

describe('documents that refuse writes, in front of 100 healthy ones', () => {
  const database = useDatabase()
  const read = async (id = 'bad') => (await things(database.db).findOne({ _id: id })) as Document

  const refusal = (id: string) => whyNotClaimable(database.db, 'Thing', termsOf(30_000), id)

  function replica(handler: CreatingHandler = async (_doc, step) => step.moveTo('Created'), settings: object = {}) {
    const events: BrokenDocument[] = []
    const logger = recordingLogger()
    const clock = new ShiftedClock()
    const options: Partial<ReplicaOptions> = { logger, clock, observer: { broken: (event) => void events.push(event) } }
    return { one: replicaOf(database.db, thingWith(handler, thingOf(settings)), options), events, logger, clock }
  }

  async function putHealthy(): Promise<void> {
    const lockedAt = TASK_LOCK_INIT_TIME
    await things(database.db).insertMany(
      Array.from({ length: HEALTHY }, (_, i) => ({ _id: `healthy-${i}`, phase: 'Creating', lockedAt })),
    )
  }

  async function expectHealthyDone(run: () => Promise<unknown>): Promise<void> {
    const done = { _id: /^healthy/, phase: 'Created' }
    // Again where a command took too long, as a replica does that ticks.
    await eventually(
      async () => {
        await run()
        expect(await things(database.db).countDocuments(done)).toBe(HEALTHY)
      },
      { timeoutMs: 90_000 },
    )
  }

  const bigDocument = (_id: string, spare: number) => {
    const document = { _id, phase: 'Creating', blob: '' }
    document.blob = 'x'.repeat(LIMIT - spare - BSON.calculateObjectSize(document))
    return document
  }

  test('three within 200 bytes of 16 MiB: no outcome is lost, each is told once, tried again ever more seldom', async () => {
    const { one, events, logger, clock } = replica()
    await one.prepare()
    for (const spare of [0, 100, 200]) await things(database.db).insertOne(bigDocument(`big-${spare}`, spare))
    await putHealthy()
    await expectHealthyDone(() => one.runOnce())
    const big = await things(database.db)
      .find({ _id: /^big/ }, { projection: { blob: 0 } })
      .toArray()
    expect(big.slice(0, 2)).toEqual([0, 100].map((spare) => ({ _id: `big-${spare}`, phase: 'Creating' })))
    // This one has room for a claim and for no outcome: its lease runs out, and its claims are counted.
    expect(big[2]).toMatchObject({ phase: 'Creating', lockedBy: expect.any(String), progress: { claims: 1 } })
    expect(events.map(({ reason, fate }) => [reason, fate])).toEqual(Array(3).fill(['tooLarge', 'skipped']))
    expect(one.status().skipped).toBe(3)
    // They are tried again after their pauses, without a word.
    for (let again = 0; again < 2; again += 1) {
      clock.advance(LONGEST_PAUSE_MS)
      expect((await one.runOnce()).due).toBeGreaterThan(0)
    }
    expect(logger.lines.filter((line) => line.message.includes('refuses writes (tooLarge)'))).toHaveLength(3)
    // Its owner makes room: it goes on by itself.
    await things(database.db).updateOne({ _id: 'big-0' }, { $set: { blob: '' } })
    clock.advance(LONGEST_PAUSE_MS)
    await one.runOnce()
    expect(await read('big-0')).toMatchObject({ phase: 'Created' })
    expect(one.status().skipped).toBe(2)
  })

  const strict = {
    $jsonSchema: { additionalProperties: false, properties: { _id: {}, phase: {}, strict: {}, lockedAt: {} } },
  }
  test.each([
    ['additionalProperties: false', { $or: [{ strict: { $exists: false } }, strict] }],
    ['a field of ours that must be a text', { $or: [{ strict: { $exists: false } }, { fence: { $type: 'string' } }] }],
  ])('the owner has a validator: %s', async (_name, validator) => {
    await database.db.createCollection('Thing', { validator })
    const bad = Array.from({ length: 30 }, (_, i) => ({ _id: `bad-${i}`, phase: 'Creating', strict: true }))
    await things(database.db).insertMany(bad, { bypassDocumentValidation: true })
    await putHealthy()
    const { one, events, logger } = replica()
    await one.prepare()
    await expectHealthyDone(() => one.runOnce())
    expect(await things(database.db).find({ strict: true }).sort({ _id: 1 }).toArray()).toEqual(
      bad.sort((a, b) => (a._id < b._id ? -1 : 1)),
    )
    expect(await refusal('bad-0')).toMatch(/^the validator of Thing refuses Phaselock's fields/)
    expect(await refusal('healthy-0')).toBeUndefined()
    expect(events.filter(({ reason, fate }) => reason === 'validator' && fate === 'skipped')).toHaveLength(30)
    expect(logger.lines.filter((line) => line.message.includes('refuses writes')).length).toBeLessThanOrEqual(11)
  })

  test('a whole collection that refuses: bounded, no hot loop, and it goes on when its owner has mended that', async () => {
    await database.db.createCollection('Thing', {
      validator: { $or: [{ lockedBy: { $exists: false } }, { n: 1 }] },
    })
    await putHealthy()
    const { one, events, clock } = replica()
    await one.runOnce()
    expect(events).toHaveLength(HEALTHY)
    await things(database.db).updateMany({}, { $set: { n: 1 } })
    clock.advance(LONGEST_PAUSE_MS)
    await expectHealthyDone(() => one.runOnce())
    expect(one.status().skipped).toBe(0)
  })

  test('a unique index on lockedBy, which a batch breaks: each is claimed alone', async () => {
    const { one } = replica()
    await one.prepare()
    await things(database.db).createIndex({ lockedBy: 1 }, { unique: true, sparse: true })
    await putHealthy()
    await expectHealthyDone(() => one.runOnce())
  })

  test('a document that can be claimed and takes no outcome: counted, parked as poison after ten claims', async () => {
    const holds = { $or: [{ strict: { $exists: false } }, { 'progress.endedBy': { $exists: false } }] }
    await database.db.createCollection('Thing', { validator: holds })
    await things(database.db).insertOne({ _id: 'bad', phase: 'Creating', strict: true })
    await putHealthy()
    const { one, events, logger, clock } = replica()
    await one.prepare()
    await expectHealthyDone(() => one.runOnce())
    expect(events).toMatchObject([{ id: 'bad', reason: 'validator', fate: 'skipped' }])
    expect(await read()).toMatchObject({ phase: 'Creating', progress: { claims: 1 }, lockedBy: expect.any(String) })
    for (let claims = 2; claims <= 11; claims += 1) {
      clock.advance(LONGEST_PAUSE_MS)
      await backDate(database.db, 'bad', 31_000)
      await one.runOnce()
    }
    const parked = await read()
    expect(parked).toMatchObject({ phase: 'Creating', lockedAt: PARKED_AT, strict: true, progress: { claims: 11 } })
    expect(parked).not.toHaveProperty('lockedBy')
    expect(logger.lines.filter((line) => line.message.includes('refuses writes'))).toHaveLength(1)
    expect(logger.lines.map((line) => line.message)).toContainEqual(
      expect.stringMatching(/^parked: claimed 10 times without a recorded outcome.*; this could not be stored:/),
    )
  })

  test("its owner replaces progress under the handler: put aside, the owner's stays, outcomes beside it are recorded", async () => {
    await things(database.db).insertOne({ _id: 'bad', phase: 'Creating' })
    await putHealthy()
    const { one, events } = replica(async (doc, step) => {
      if (doc._id === 'bad') await things(database.db).updateOne({ _id: 'bad' }, { $set: { progress: 'mine' } })
      return step.moveTo('Created')
    })
    await one.prepare()
    await expectHealthyDone(() => one.runOnce())
    expect(await read()).toMatchObject({ phase: 'Creating', progress: 'mine', lockedAt: PARKED_AT })
    expect(await read()).not.toHaveProperty('lockedBy')
    expect(events).toMatchObject([{ id: 'bad', reason: 'progress' }])
  })

  test.each([
    [
      'too large',
      (_id: string) => ({ _id, blob: 'x'.repeat(LIMIT - 200_000) }),
      'MongoServerError',
      /larger than|exceeds maximum/,
    ],
    ['against the validator', (_id: string) => ({ _id, even: true }), 'MongoServerError', /validation/],
  ])(
    'an outcome that is %s, among 100: its error is recorded, the others are too',
    async (_name, make, name, message) => {
      const odd = { $or: [{ even: { $exists: false } }, { effects: { $exists: false } }] }
      await database.db.createCollection('Thing', { validator: odd })
      await things(database.db).insertOne({ phase: 'Creating', ...make('bad') })
      await putHealthy()
      const { one } = replica(async (doc, step) =>
        step.moveTo('Created', { set: { effects: [doc._id === 'bad' ? 'x'.repeat(250_000) : 'x'] } }),
      )
      await one.prepare()
      await expectHealthyDone(() => one.runOnce())
      const { phase, progress } = await read()
      expect(phase).toBe('Creating')
      expect(progress).toMatchObject({
        attempts: expect.any(Number),
        error: { name, message: expect.stringMatching(message) },
      })
    },
  )

  test('a state rule and a removal go around them, and never stop what is due', async () => {
    const unchanged = { updatedAt: { $exists: false }, 'progress.since': { $exists: false } }
    await database.db.createCollection('Thing', { validator: { $or: [{ strict: { $exists: false } }, unchanged] } })
    const strictly = (_id: string, more: Document) => ({ _id, strict: true, ...more })
    await things(database.db).insertMany([
      strictly('ruled', { phase: 'Created', state: 'Deleted' }),
      strictly('final', { phase: 'Deleted' }),
      { _id: 'good', phase: 'Created', state: 'Deleted' },
    ])
    await putHealthy()
    const phases = {
      Creating: { next: ['Created', 'Deleting'] },
      Created: { rest: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true, keepFor: '1h' },
    }
    const { one, events } = replica(undefined, { phases })
    await one.prepare()
    await expectHealthyDone(() => one.runOnce())
    expect(await read('good')).toMatchObject({ phase: 'Deleted' })
    expect(await read('ruled')).toMatchObject({ phase: 'Created', state: 'Deleted' })
    expect(await read('final')).toEqual({ _id: 'final', strict: true, phase: 'Deleted' })
    expect(events.map(({ id, fate }) => [id, fate]).sort()).toEqual([
      ['final', 'skipped'],
      ['ruled', 'skipped'],
    ])
  })

  test.each([
    ['far in the future', '8000000000000000'],
    ['out of all range', '9000000000000000'],
  ])('a final document entered %s is kept for keepFor from now, and stops no removal', async (_name, ms) => {
    const phases = {
      Creating: { next: ['Created', 'Deleting'] },
      Created: { rest: true },
      Deleting: { next: ['Deleted'] },
      Deleted: { final: true, keepFor: '1h' },
    }
    await things(database.db).updateOne(
      { _id: 'bad' },
      [{ $set: { phase: 'Deleted', 'progress.since': { $toDate: BSON.Long.fromString(ms) } } }],
      { upsert: true },
    )
    const { one } = replica(undefined, { phases })
    await putHealthy()
    await one.prepare()
    await expectHealthyDone(() => one.runOnce())
    const { progress } = await read()
    expect(progress.resumeAt.getTime() - progress.since.getTime()).toBe(3_600_000)
    expect(Math.abs(Date.now() - progress.since.getTime())).toBeLessThan(60_000)
  })

  test('metrics say how many, why, and what was done', async () => {
    const lifecycle = thingWith(async (_doc, step) => step.moveTo('Created'))
    const metrics = replicaMetrics({ db: database.db, lifecycles: [lifecycle], processMetrics: false })
    const one = replicaOf(database.db, lifecycle, { observer: metrics.observer })
    metrics.watch(one)
    await one.prepare()
    await things(database.db).insertOne(bigDocument('big', 0))
    await things(database.db).insertMany([
      { _id: 'text', phase: 'Creating', lockedAt: 'x' },
      { _id: 'regex', phase: 'Creating', lockedAt: /x/ },
      { _id: 'mine', phase: 'Creating', progress: 'mine' },
      { _id: 'list', phase: ['Creating'] },
      { _id: 'number', phase: 1 },
      { _id: 'dates', phase: 'Creating', updatedAt: '2026-01-01' },
    ] as never)
    await one.runOnce()
    const text = await metrics.registry.metrics()
    const count = (reason: string, fate: string) =>
      Number(
        new RegExp(
          `^phaselock_broken_documents_total\\{lifecycle="thing",reason="${reason}",fate="${fate}"\\} (\\d+)$`,
          'm',
        ).exec(text)?.[1],
      )
    expect(count('tooLarge', 'skipped')).toBe(1)
    expect(count('lockedAt', 'mended')).toBe(2)
    expect(count('progress', 'putAside')).toBe(1)
    expect(count('phase', 'putAside')).toBe(1)
    expect(count('phase', 'leftAlone')).toBe(1)
    expect(count('updatedAt', 'leftAlone')).toBe(1)
    expect(text).toMatch(/^phaselock_documents_skipped 1$/m)
  })
})
