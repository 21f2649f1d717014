import { describe, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import {
  CLAIM_INDEX,
  ensureLockIndexes,
  LIFECYCLES_COLLECTION,
  LIMITS_COLLECTION,
  moreIndexes,
  PARKED_AT,
  REPLICAS_COLLECTION,
  TASK_LOCK_INIT_TIME,
} from '../../src/lock/index.js'
import { TERMS, whyDocument } from '../../src/operations/index.js'
import { thingOf, things } from '../support/thing.js'
import { ago, IN_AN_HOUR, lifecycle, useWhy } from './why-world.js'

describe('why no replica claims a due document', () => {
  const { database, collection, insert, present, why, termNow, without } = useWhy()

  test('a due document that a replica can take: all hold, in the order in which the engine judges them', async () => {
    const replica = await present()
    await insert({})
    const { terms, sentence, blockedBy, seen } = await why()
    expect(terms.map(({ name }) => name)).toEqual([...TERMS])
    expect(terms.filter((term) => term.holds !== true)).toEqual([])
    expect(blockedBy).toBeUndefined()
    expect(sentence).toMatch(/^Due since [\d.]+ s: api~\w+ runs Creating next\.$/)
    expect(seen).toMatch(/^[0-9a-f]{24}$/)
    expect(terms.find(({ name }) => name === 'replica')!.evidence).toMatchObject({
      handles: [{ name: replica.identity, places: 32, free: 32 }],
      share: replica.identity,
    })
  })

  test("clock: a step of the server's clock is held back; without the right to know it is unknown", async () => {
    await present()
    const step = { at: new Date(), ms: 3_600_000, until: IN_AN_HOUR() }
    await insert({ lockedAt: ago(600_000), lockedBy: 'gone~1#2.3', fence: 1 })
    await collection(LIFECYCLES_COLLECTION).updateOne({ _id: 'thing' }, { $set: { clockStep: step } })
    expect(await termNow('clock')).toMatchObject({ holds: false, blockedBy: 'clock', evidence: { ms: 3_600_000 } })
    await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedAt: TASK_LOCK_INIT_TIME } })
    expect(await termNow('clock')).toMatchObject({ holds: true, evidence: { ms: 3_600_000 } })
  })

  test('limit: full, paused, too small, none, slow', async () => {
    await present()
    await insert({})
    const limit = (fields: Document) =>
      collection(LIMITS_COLLECTION).replaceOne({ _id: 'api' }, fields, { upsert: true })
    const of = async (fields: Document) => {
      await limit(fields)
      return termNow('limit')
    }
    const failing = { holds: false, blockedBy: 'limit' }
    const holder = { by: 'other~1', slots: 2, until: IN_AN_HOUR() }
    expect(await of({ slots: 2, holders: [holder] })).toMatchObject({
      ...failing,
      text: 'it waits for a slot of its limit api: 2 of 2 are taken: other~1 has 2',
      evidence: { taken: 2, needs: 1, holders: [{ by: 'other~1' }] },
    })
    expect(await of({ slots: 3, holders: [holder] })).toMatchObject({ holds: true })
    expect(await of({ slots: 0 })).toMatchObject({
      ...failing,
      action: { command: 'phaselock limits set api --slots 1' },
    })
    expect(await of({ slots: 5, paused: { by: 'ana', reason: 'tests' } })).toMatchObject({
      ...failing,
      text: 'its limit api: paused by ana: tests (phaselock limits resume api)',
      action: { command: 'phaselock limits resume api' },
    })
    expect(await of({ slots: 5, rate: 'fast' })).toMatchObject({
      ...failing,
      evidence: { damaged: expect.any(String) },
    })
    const rate = { starts: 1, perMs: 3_600_000 }
    expect(await of({ slots: 5, rate, bucket: { left: 0, at: new Date() } })).toMatchObject({
      ...failing,
      text: expect.stringContaining('none may now'),
    })
    expect(await of({ slots: 5, rate, bucket: { left: 1, at: new Date() } })).toMatchObject({ holds: true })
    await collection(LIMITS_COLLECTION).deleteMany({})
    expect(await termNow('limit')).toMatchObject({ ...failing, evidence: { exists: false } })
    expect(await termNow('limit', { db: without(LIMITS_COLLECTION) })).toMatchObject({ holds: 'unknown' })
  })

  test('limit: a slot that a live replica has leased and does not use is free for it', async () => {
    const replica = await present()
    await insert({})
    const holder = { by: replica.identity, slots: 1, until: IN_AN_HOUR() }
    await collection(LIMITS_COLLECTION).updateOne({ _id: 'api' }, { $set: { slots: 1, holders: [holder] } })
    const leased = (used: number) =>
      collection(REPLICAS_COLLECTION).updateMany({}, { $set: { limits: [{ limit: 'api', leased: 1, used }] } })
    await leased(1)
    expect(await termNow('limit')).toMatchObject({ holds: false })
    await leased(0)
    expect(await termNow('limit')).toMatchObject({ holds: true, evidence: { unused: 1 } })
    await leased(1)
    // Those of a replica that doesn't say may be free.
    const beatsUnread = { db: without(REPLICAS_COLLECTION) }
    expect(await termNow('limit', beatsUnread)).toMatchObject({ holds: 'unknown', evidence: { unused: null } })
    await collection(REPLICAS_COLLECTION).deleteMany({})
    expect(await termNow('limit')).toMatchObject({
      holds: 'unknown',
      text: expect.stringContaining(`${replica.identity} doesn't say how many of its slots it uses`),
    })
  })

  test('replica: none is live, none handles its phase, an older one does not say, the right is missing', async () => {
    await insert({})
    await collection(LIMITS_COLLECTION).insertOne({ _id: 'api', slots: 5 })
    await collection(LIFECYCLES_COLLECTION).insertOne({ _id: 'thing', lockTimeout: 30_000 })
    await things(database.db).createIndex(CLAIM_INDEX)
    expect(await termNow('replica')).toMatchObject({
      holds: false,
      blockedBy: 'replica',
      text: 'no replica of thing is live',
    })
    const entry = (fields: Document) => collection(LIFECYCLES_COLLECTION).updateOne({ _id: 'thing' }, { $set: fields })
    await entry({ replicas: [{ name: 'old~1', seenAt: new Date() }] })
    expect(await termNow('replica')).toMatchObject({
      holds: 'unknown',
      text: "old~1 doesn't say which phases it handles",
    })
    await entry({ replicas: [{ name: 'other~1', seenAt: new Date(), phases: ['Deleting'] }] })
    expect(await termNow('replica')).toMatchObject({
      holds: false,
      text: 'no live replica handles Creating: other~1 has other phases',
    })
    await entry({ replicas: [], handledAt: new Date() })
    expect(await termNow('replica')).toMatchObject({ holds: 'unknown' })
    const { sentence } = await why()
    expect(sentence).toMatch(
      /^Due since [\d.]+ s, and nothing that is known stands in its way; not known: replica \(a replica of thing has looked/,
    )
  })

  test('turn: how many are ahead, and how many places are free; unknown before it is due', async () => {
    await present()
    await insert({})
    const before = Array.from({ length: 40 }, (_, i) => ({
      _id: `b${i}`,
      phase: 'Creating',
      lockedAt: TASK_LOCK_INIT_TIME,
      updatedAt: ago(9_000),
    }))
    await things(database.db).insertMany([
      ...before.slice(0, 20),
      { _id: 'after', phase: 'Creating', lockedAt: TASK_LOCK_INIT_TIME, updatedAt: new Date() },
      { _id: 'other', phase: 'Deleting', lockedAt: TASK_LOCK_INIT_TIME, updatedAt: ago(9_000) },
    ])
    expect(await termNow('turn')).toMatchObject({
      holds: true,
      evidence: { ahead: { n: 20 }, kind: 'released', free: 32 },
    })
    await things(database.db).insertMany(before.slice(20))
    expect(await termNow('turn')).toMatchObject({ holds: false, blockedBy: 'turn', evidence: { ahead: { n: 40 } } })
    await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedAt: IN_AN_HOUR() } })
    expect(await termNow('turn')).toMatchObject({ holds: 'unknown' })
  })

  test('turn: of a lifecycle that is fair to all values, those of others count until all due ones have a place', async () => {
    const fair = thingOf({ fairBy: 'tenant' }).model
    await present()
    await ensureLockIndexes(things(database.db) as never, {}, moreIndexes(fair.settings))
    await insert({ tenant: 'x' })
    const others = Array.from({ length: 40 }, (_, i) => ({
      ...{ _id: `b${i}`, phase: 'Creating', lockedAt: TASK_LOCK_INIT_TIME, updatedAt: ago(9_000), tenant: 'y' },
    }))
    await things(database.db).insertMany(others.slice(0, 20) as never)
    expect(await termNow('turn', { models: [fair] })).toMatchObject({ holds: true, evidence: { ahead: { n: 0 } } })
    await things(database.db).insertMany(others.slice(20) as never)
    expect(await termNow('turn', { models: [fair] })).toMatchObject({
      ...{ holds: 'unknown', evidence: { ahead: { n: 0 }, due: { n: 40 } } },
      text: expect.stringContaining('40 others are due, and what comes before it among those of other tenant'),
    })
  })

  test('writes: the server refuses a claim', async () => {
    await present()
    await insert({})
    await things(database.db).updateOne({ _id: 'a' }, { $set: { blob: 'x'.repeat(16 * 1024 * 1024 - 5_000) } })
    expect(await termNow('writes')).toMatchObject({
      holds: false,
      blockedBy: 'writes',
      text: expect.stringContaining('so large'),
    })
    await things(database.db).updateOne({ _id: 'a' }, { $set: { lockedAt: PARKED_AT } })
    expect(await termNow('writes')).toMatchObject({ holds: 'unknown' })
  })

  test('isolation: a suspect runs alone on its last claim', async () => {
    const replica = await present()
    await insert({ progress: { claims: 2 } })
    expect(await termNow('isolation')).toMatchObject({
      holds: true,
      evidence: { claims: 2, maxClaims: 3, alone: true },
    })
    const holds = (held: number | undefined) =>
      collection(REPLICAS_COLLECTION).updateOne({ _id: replica.identity }, { $set: { 'lifecycles.0.held': held } })
    await holds(4)
    expect(await termNow('isolation')).toMatchObject({ holds: false, blockedBy: 'isolation' })
    await collection(REPLICAS_COLLECTION).deleteMany({})
    expect(await termNow('isolation')).toMatchObject({ holds: 'unknown' })
    await things(database.db).updateOne({ _id: 'a' }, { $set: { 'progress.claims': 3 } })
    expect(await termNow('isolation')).toMatchObject({
      holds: true,
      text: expect.stringContaining('the next claim parks it'),
    })
  })

  test('index: it is missing, or may not be listed', async () => {
    await present()
    await insert({})
    await things(database.db).dropIndex(Object.entries(CLAIM_INDEX).flat().join('_'))
    expect(await termNow('index')).toMatchObject({
      holds: false,
      blockedBy: 'index',
      action: { command: 'phaselock check --repair' },
    })
    expect(await termNow('turn')).toMatchObject({ holds: 'unknown' })
  })

  test('what the role lets nobody read is unknown, and the rest is still judged', async () => {
    await present()
    await insert({})
    const db = without(REPLICAS_COLLECTION, LIMITS_COLLECTION)
    const { terms, blockedBy } = await why({ db })
    expect(blockedBy).toBeUndefined()
    expect(terms.filter((term) => term.holds === 'unknown').map(({ name }) => name)).toEqual(['limit', 'turn'])
  })

  test('it costs a bounded number of commands, whatever is ahead of the document, and reads none of those', async () => {
    await present()
    await insert({})
    const many = Array.from({ length: 1_200 }, (_, i) => ({
      ...{ _id: `b${i}`, phase: 'Creating', lockedAt: TASK_LOCK_INIT_TIME, updatedAt: ago(9_000) },
    }))
    await things(database.db).insertMany(many)
    const client = await new MongoClient(database.uri, { monitorCommands: true }).connect()
    const sent: Document[] = []
    client.on('commandStarted', ({ command }) => sent.push(command))
    const db = client.db(database.db.databaseName)
    const { terms } = await whyDocument({ db, models: [lifecycle.model] }, { id: 'a' })
    await client.close()
    expect(terms.find(({ name }) => name === 'turn')).toMatchObject({
      ...{ holds: false, evidence: { ahead: { n: 1_000, more: true } } },
      text: expect.stringMatching(/^1,000\+ are ahead of it/),
    })
    expect(sent.length).toBeLessThanOrEqual(9)
    const counted = sent.find(({ pipeline }) => pipeline?.some((stage: Document) => '$count' in stage))!
    const plan = await things(database.db)
      .aggregate(counted['pipeline'], { hint: counted['hint'] })
      .explain('executionStats')
    expect(JSON.stringify(plan)).toMatch(/"totalDocsExamined":0\b/)
  })
})
