import { describe, expect, jest, test } from '@jest/globals'
import { PARKED_AT, Renewals, ruleLook, ruleUpdate, type Terms } from '../../src/lock/index.js'
import { conditionOf, countPhases } from '../../src/operations/index.js'
import {
  ago,
  claimed,
  claimer,
  endOf,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  moveTo,
  PHASE,
  put,
  read,
  writer,
} from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { recordingObserver, replicaOf, thingOf, things, thingWith } from '../support/thing.js'
import { BLIND, LegacyWriter, TERMS } from './legacy-writer.js'

jest.setTimeout(240_000)

const RULE = { when: 'Deleted', from: [PHASE], moveTo: 'Deleting' }

describe('hole 11: writers of the old kind, which lease without lockedBy', () => {
  const database = useDatabase()

  describe('a state rule', () => {
    async function leasedIsTaken(terms: Terms): Promise<boolean> {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE, state: 'Deleted', lockedAt: new Date(0) })
      await new LegacyWriter(collection as never, LOCK_TIMEOUT_MS).findAndLock(PHASE)
      const looked = await collection.countDocuments(ruleLook(terms, RULE))
      const { modifiedCount } = await collection.updateMany(...ruleUpdate(terms, RULE, ['a']))
      expect(looked).toBe(modifiedCount)
      return modifiedCount === 1
    }
    test('leaves a document alone that such a writer has leased', async () => {
      expect(await leasedIsTaken(TERMS)).toBe(false)
    })
    test('negative control: without legacyWriters it looks asleep', async () => {
      expect(await leasedIsTaken(BLIND)).toBe(true)
    })

    test('takes what is free, expired, asleep for Phaselock, or parked; nothing else', async () => {
      const collection = await lockedCollection(database.db)
      const wake = (ms: number) => ({ $add: ['$$NOW', ms] })
      const base = { phase: PHASE, state: 'Deleted' }
      await put(
        collection,
        { _id: 'free', ...base },
        { _id: 'expired', ...base, lockedAt: ago(31_000), lockedBy: 'x#1.1' },
        { _id: 'asleep', ...base, lockedAt: ago(20_000), progress: { resumeAt: wake(10_000) } },
        { _id: 'parked', ...base, lockedAt: PARKED_AT },
        { _id: 'held', ...base, lockedAt: ago(20_000), lockedBy: 'x#1.1', progress: { resumeAt: wake(10_000) } },
        { _id: 'leased', ...base, lockedAt: ago(20_000) },
        { _id: 'leased after a sleep', ...base, lockedAt: ago(1_000), progress: { resumeAt: ago(5_000) } },
        { _id: 'leased, our old token there', ...base, lockedAt: ago(20_000), lockedBy: 'x#1.1' },
      )
      const found = await collection.find(ruleLook(TERMS, RULE)).toArray()
      const taken = ['asleep', 'expired', 'free', 'parked']
      expect(found.map(({ _id }) => String(_id)).sort()).toEqual(taken)
      const ids = (await collection.find().toArray()).map(({ _id }) => _id)
      await collection.updateMany(...ruleUpdate(TERMS, RULE, ids))
      const moved = await collection.find({ phase: 'Deleting' }).toArray()
      expect(moved.map(({ _id }) => String(_id)).sort()).toEqual(taken)
    })
  })

  describe('a late write of ours, after such a writer took over the expired lease', () => {
    async function lateWrite(terms: Terms): Promise<{ phase: string; verdict: string | undefined; lost: number }> {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE })
      const replica = await claimer(collection, { terms })
      const { lease } = await claimed(collection, replica)
      // It stood still for longer than its lease; the other one leaves our lockedBy there.
      await collection.updateOne({ _id: 'a' as never }, [
        { $set: { lockedAt: ago(31_000), ...(terms.legacyWriters ? { 'progress.lockedAt': ago(31_000) } : {}) } },
      ])
      const legacy = new LegacyWriter(collection as never, LOCK_TIMEOUT_MS)
      expect((await legacy.findAndLock(PHASE))?.id).toBe('a')
      expect(await read(collection, 'a')).toMatchObject({ lockedBy: lease.token })
      const lost = await new Renewals(collection, () => terms, replica.clock).renew([lease])
      const end = endOf(lease, moveTo('Created'))
      const verdicts = await writer(collection, { terms: () => terms }).write([end])
      await legacy.finish('a', PHASE, { phase: 'Theirs' })
      return { phase: (await read(collection, 'a'))['phase'], verdict: verdicts.get(end)?.kind, lost: lost.length }
    }
    test('is refused, as is its renewal', async () => {
      expect(await lateWrite(TERMS)).toEqual({ phase: 'Theirs', verdict: 'lost', lost: 1 })
    })
    test('negative control: without legacyWriters it overwrites', async () => {
      expect(await lateWrite(BLIND)).toEqual({ phase: 'Created', verdict: 'recorded', lost: 0 })
    })
  })

  test('our own leases work as ever: claim, renewal, again, checkpoint, wait', async () => {
    const db = database.db
    const lifecycle = thingOf({ legacyWriters: true, lockTimeout: '6s' })
    const observer = recordingObserver()
    const handler = thingWith(async (doc, step) => {
      if (!doc.n) {
        await step.checkpoint({ n: 1 })
        const lockedAt = async () => (await things(db).findOne({ _id: 'a' }))!['lockedAt'].getTime()
        const before = await lockedAt()
        await eventually(async () => (await lockedAt()) > before) // renewed
        return step.again({ set: { n: 2 } })
      }
      return doc.n === 2 ? step.wait('a bit', { for: '100ms', set: { n: 3 } }) : step.moveTo('Created')
    }, lifecycle)
    const replica = replicaOf(db, handler, { observer })
    await things(db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.runOnce()
    await eventually(async () => {
      await replica.runOnce()
      expect(await things(db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created', n: 3 })
    })
    expect(observer.losses).toEqual([])
  })

  test('wake, show and list know a lease of the old kind from a sleep', async () => {
    const { db } = database
    const lifecycle = thingOf({ legacyWriters: true })
    const handler = thingWith(async (_doc, step) => step.wait('x', { for: '10m' }), lifecycle)
    const replica = replicaOf(db, handler)
    await things(db).insertMany([
      { _id: 'asleep', phase: 'Creating' },
      { _id: 'leased', phase: 'Created' },
    ])
    await replica.runOnce()
    await things(db).updateOne({ _id: 'leased' }, { $set: { phase: 'Creating', lockedAt: new Date() } })
    expect(await countPhases({ db, models: [lifecycle.model] }, { fresh: true })).toContainEqual(
      expect.objectContaining({ phase: 'Creating', documents: { n: 2 }, held: 1, sleeping: { n: 1 } }),
    )
    const owner = (handler as ReturnType<typeof lifecycle.handle>).owner()
    expect(await owner.wake('leased')).not.toBe('done')
    expect(await owner.wake('asleep')).toBe('done')
    const condition = conditionOf((await things(db).findOne({ _id: 'leased' }))!, lifecycle.model, new Date(), 30_000)
    expect(condition).toMatchObject({ kind: 'held', by: 'a legacy writer' })
  })
})
