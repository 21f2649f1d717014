import { describe, expect, test } from '@jest/globals'
import { BSON, type Document } from 'mongodb'
import { PARKED_AT, termsOf, whyNotClaimable } from '../../src/lock/index.js'
import { replicaMetrics } from '../../src/telemetry/index.js'
import { useDatabase } from '../support/database.js'
import { backDate, type CreatingHandler, replicaOf, things, thingWith } from '../support/thing.js'
import {
  bigDocument,
  expectHealthyDoneIn,
  expectOthersRecorded,
  HEALTHY,
  LONGEST_PAUSE_MS,
  putHealthyIn,
  watchedReplica,
} from './beside-healthy.js'

describe('documents that refuse writes, in front of 100 healthy ones', () => {
  const database = useDatabase()
  const read = async (id = 'bad') => (await things(database.db).findOne({ _id: id })) as Document

  const refusal = (id: string) => whyNotClaimable(database.db, 'Thing', termsOf(30_000), id)

  const replica = (handler?: CreatingHandler, settings?: object) => watchedReplica(database.db, handler, settings)
  const putHealthy = () => putHealthyIn(database.db)
  const expectHealthyDone = (run: () => Promise<unknown>) => expectHealthyDoneIn(database.db, run)

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

  test('an outcome that is against the validator, among 100: its error is recorded, the others are too', async () => {
    const odd = { $or: [{ even: { $exists: false } }, { effects: { $exists: false } }] }
    await database.db.createCollection('Thing', { validator: odd })
    await things(database.db).insertOne({ _id: 'bad', phase: 'Creating', even: true })
    await expectOthersRecorded(database.db, /validation/)
  })

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
