import { describe, expect, jest, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import {
  endLeasesOf,
  LIFECYCLES_COLLECTION,
  PARKED_AT,
  Renewals,
  ruleLook,
  ruleUpdate,
  type Terms,
  termsOf,
  uncountClaims,
} from '../../src/lock/index.js'
import { conditionOf, Holder, NoLongerHeld } from '../../src/phases/index.js'
import { sleep } from '../../src/time/index.js'
import {
  ago,
  claimed,
  claimer,
  clientAt,
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
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingObserver, replicaOf, ShiftedClock, type Thing, thingOf, things, thingWith } from '../support/thing.js'

jest.setTimeout(240_000)

const RULE = { when: 'Deleted', from: [PHASE], goTo: 'Deleting' }
const TERMS: Terms = termsOf(LOCK_TIMEOUT_MS, { legacyWriters: true })
const BLIND: Terms = termsOf(LOCK_TIMEOUT_MS)

/** A task service of the old kind: it leases with `lockedAt` alone, by its own clock, and unlocks by `_id` and phase. */
class LegacyWriter {
  constructor(
    private readonly collection: Collection<Document & { _id: string }>,
    private readonly lockTimeoutMs: number,
    private readonly clockAheadMs = 0,
  ) {}

  private now(): number {
    return Date.now() + this.clockAheadMs
  }

  /** The document's `_id`, and how long its lease lasts. */
  async findAndLock(phase: string): Promise<{ id: string; until: number } | undefined> {
    const now = this.now()
    const document = await this.collection.findOneAndUpdate(
      { phase, lockedAt: { $lt: new Date(now - this.lockTimeoutMs) } },
      { $set: { lockedAt: new Date(now) } },
      { sort: { lockedAt: 1, updatedAt: 1 }, returnDocument: 'after' },
    )
    return document ? { id: document._id, until: now + this.lockTimeoutMs - this.clockAheadMs } : undefined
  }

  async finish(id: string, phase: string, set: Document): Promise<void> {
    await this.collection.updateOne(
      { _id: id, phase },
      { $set: { ...set, lockedAt: new Date(0), updatedAt: new Date(this.now()) } },
    )
  }
}

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

  describe('our token under the lease of such a writer, which took over what had expired', () => {
    /** Our lease on `a` has expired and the other one has it; our lockedBy is still there. */
    async function takenOver(terms: Terms) {
      const collection = await lockedCollection(database.db)
      const lifecycles = database.db.collection<{ _id: string; lockTimeout: number }>(LIFECYCLES_COLLECTION)
      await lifecycles.insertOne({ _id: 'thing', lockTimeout: LOCK_TIMEOUT_MS })
      await put(collection, { _id: 'a', phase: PHASE })
      const replica = await claimer(collection, { terms })
      const { lease } = await claimed(collection, replica)
      await expire(collection)
      await new LegacyWriter(collection as never, LOCK_TIMEOUT_MS).findAndLock(PHASE)
      const document = await read(collection, 'a')
      expect(document).toMatchObject({ lockedBy: lease.token })
      return { collection, replica, lease, document }
    }
    const expire = (collection: Collection) =>
      collection.updateOne({ _id: 'a' as never }, [
        {
          $set: {
            lockedAt: ago(31_000),
            'progress.lockedAt': { $cond: ['$progress.lockedAt', ago(31_000), '$$REMOVE'] },
          },
        },
      ])

    async function recovered(terms: Terms): Promise<number> {
      const { collection, replica } = await takenOver(terms)
      const leased = { lifecycle: 'thing', collection, phases: [PHASE], terms }
      return endLeasesOf(database.db, leased, replica.identity)
    }
    test('early recovery leaves its lease alone', async () => {
      expect(await recovered(TERMS)).toBe(0)
    })
    test('negative control: without legacyWriters early recovery ends it', async () => {
      expect(await recovered(BLIND)).toBe(1)
    })

    test('early recovery ends what the process that has ended still had', async () => {
      const { collection, replica } = await takenOver(TERMS)
      await put(collection, { _id: 'b', phase: PHASE })
      await claimed(collection, replica)
      const leased = { lifecycle: 'thing', collection, phases: [PHASE], terms: TERMS }
      expect(await endLeasesOf(database.db, leased, replica.identity)).toBe(1)
    })

    test('a second pass of early recovery leaves a lease alone that began in the millisecond of the one it ended', async () => {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE })
      const replica = await claimer(collection, { terms: TERMS })
      await database.db
        .collection<Document & { _id: string }>(LIFECYCLES_COLLECTION)
        .insertOne({ _id: 'thing', lockTimeout: LOCK_TIMEOUT_MS })
      const { document } = await claimed(collection, replica)
      const leased = { lifecycle: 'thing', collection, phases: [PHASE], terms: TERMS }
      expect(await endLeasesOf(database.db, leased, replica.identity)).toBe(1)
      await collection.updateOne({ lockedAt: new Date(0) }, { $set: { lockedAt: document['lockedAt'] } })
      expect(await endLeasesOf(database.db, leased, replica.identity)).toBe(0)
    })

    test('a stop in order changes nothing of the document', async () => {
      const { collection, lease, document } = await takenOver(TERMS)
      await uncountClaims(collection, TERMS, [lease])
      expect(await read(collection, 'a')).toEqual(document)
      // Negative control.
      await uncountClaims(collection, BLIND, [lease])
      expect(await read(collection, 'a')).not.toEqual(document)
    })

    /** What a handler's writes under its document's lease have come to, while the other one has it. */
    async function handlersWrites(legacyWriters: boolean): Promise<string[]> {
      const { db } = database
      const collection = db.collection<Document>('Thing')
      const said: string[] = []
      const attempted = async (what: string, attempt: Promise<unknown>) => {
        const how = await attempt.then(
          () => 'done',
          (error: Error) => (error instanceof NoLongerHeld ? 'refused' : String(error)),
        )
        said.push(`${what} ${how}`)
      }
      const handler = thingWith(async (doc: Readonly<Thing>, step) => {
        const holder = new Holder(collection, doc as never, step as never)
        await attempted('held:', holder.assertHeld())
        await collection.updateOne({ _id: doc._id as never }, [
          { $set: { lockedAt: ago(31_000), ...(legacyWriters && { 'progress.lockedAt': ago(31_000) }) } },
        ])
        await new LegacyWriter(things(db), LOCK_TIMEOUT_MS).findAndLock('Creating')
        await attempted('held:', holder.assertHeld())
        await attempted('set', holder.set({ n: 7 }))
        await holder.insert({ _id: 'child' }, { collection: 'Children' })
        said.push(`inserted ${await db.collection('Children').countDocuments()}`)
        return step.moveTo('Created')
      }, thingOf({ legacyWriters }))
      await things(db).insertOne({ _id: 'a', phase: 'Creating' })
      await replicaOf(db, handler).tick()
      await eventually(() => said.length === 4)
      return said
    }
    test("a handler's writes under it are refused", async () => {
      expect(await handlersWrites(true)).toEqual(['held: done', 'held: refused', 'set refused', 'inserted 0'])
    })
    test('negative control: without legacyWriters a handler writes', async () => {
      expect(await handlersWrites(false)).toEqual(['held: done', 'held: done', 'set done', 'inserted 1'])
    })

    test('a chain does not go on with the document', async () => {
      const proxy = await TcpProxy.start(database.uri)
      const client = await clientAt(proxy.uri)
      const clock = new ShiftedClock()
      let steps = 0
      const handler = thingWith(
        async (_doc, step) => {
          steps += 1
          clock.advance(2_000) // longer than a chain goes on without reading its document again
          return steps < 3 ? step.again() : step.moveTo('Created')
        },
        thingOf({ legacyWriters: true }),
      )
      const observer = recordingObserver()
      const replica = replicaOf(client.db(database.db.databaseName), handler, { clock, observer })
      try {
        await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
        const lookAgain = proxy.hold(
          ({ name, body: { filter, projection } }) =>
            name === 'find' && filter?._id?.$in !== undefined && !projection && !filter.lockedBy,
        )
        await replica.tick()
        const held = await lookAgain
        await expire(database.db.collection('Thing'))
        await new LegacyWriter(things(database.db), LOCK_TIMEOUT_MS).findAndLock('Creating')
        held.release()
        await replica.idle()
        expect(steps).toBe(1)
        expect(observer.losses).toHaveLength(1)
      } finally {
        await replica.stop()
        await client.close()
        await proxy.stop()
      }
    })

    test.each(['read by its token', 'read back after an answer that was lost'])(
      'a claim that is %s does not begin with the document',
      async (how) => {
        const proxy = await TcpProxy.start(database.uri)
        const client = await clientAt(proxy.uri)
        try {
          const collection = await lockedCollection(database.db)
          await put(collection, { _id: 'a', phase: PHASE }, { _id: 'b', phase: PHASE })
          const through = client.db(database.db.databaseName).collection(collection.collectionName)
          const replica = await claimer(through, { terms: TERMS })
          const reading = proxy.hold(({ name, body }) => name === 'find' && body['filter']?.lockedBy !== undefined)
          if (how.includes('lost')) void proxy.cutAfter('update')
          const claiming = replica.claims.claimBatch(PHASE, 10)
          const held = await reading
          await expire(collection)
          await new LegacyWriter(collection as never, LOCK_TIMEOUT_MS).findAndLock(PHASE)
          held.release()
          expect((await claiming).claimed.map(({ lease }) => lease.id)).toEqual(['b'])
        } finally {
          await client.close()
          await proxy.stop()
        }
      },
    )
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

  test('wake and show know a lease of the old kind from a sleep', async () => {
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
    const owner = (handler as ReturnType<typeof lifecycle.handle>).owner()
    expect(await owner.wake('leased')).not.toBe('done')
    expect(await owner.wake('asleep')).toBe('done')
    const condition = conditionOf((await things(db).findOne({ _id: 'leased' }))!, lifecycle.model, new Date(), 30_000)
    expect(condition).toMatchObject({ kind: 'held', by: 'a writer of the old kind' })
  })

  test('beside three replicas, 300 documents: none is taken from under it, none of its outcomes overwritten', async () => {
    const { db } = database
    const lockTimeoutMs = 15_000
    const lifecycle = thingOf({ legacyWriters: true, lockTimeout: `${lockTimeoutMs}ms`, concurrency: 6 })
    /** Leases of the old writer, by document; while one is running nobody of ours may begin a step or move the document. */
    const leased = new Map<string, number>()
    let fromUnder = 0
    let ours = 0
    const handler = thingWith(async (doc, step) => {
      const check = () => {
        if (step.leaseLeftMs() > 0 && (leased.get(doc._id) ?? 0) > Date.now()) fromUnder += 1
      }
      check()
      await sleep(40)
      check()
      ours += 1
      return step.wait('others', { for: '300ms' })
    }, lifecycle)
    const observer = recordingObserver()
    const replicas = ['r1', 'r2', 'r3'].map((name) => replicaOf(db, handler, { name, observer }))
    await things(db).insertMany(
      Array.from({ length: 300 }, (_, i) => ({ _id: `a${i}`, phase: 'Creating', lockedAt: new Date(0) })),
    )
    await Promise.all(replicas.map((replica) => replica.start()))
    const outcomes = new Map<string, string>()
    let overwritten = 0
    /** 300 outcomes in all, by four services; some clocks are ahead or behind by a bit. */
    const service = async (clockAheadMs: number) => {
      const legacy = new LegacyWriter(things(db), lockTimeoutMs, clockAheadMs)
      while (outcomes.size < 300) {
        // Whoever is quicker: both sides get their part.
        const lease = ours > outcomes.size ? await legacy.findAndLock('Creating') : undefined
        if (!lease) {
          await sleep(20)
          continue
        }
        leased.set(lease.id, lease.until)
        // Its owner wants it deleted while the old writer works on it: no rule may move it.
        await things(db).updateOne({ _id: lease.id }, { $set: { state: 'Deleted' } })
        await sleep(60)
        const now = await things(db).findOne({ _id: lease.id })
        if (now?.['phase'] !== 'Creating') fromUnder += 1
        leased.delete(lease.id)
        const outcome = `by the old writer ${clockAheadMs}`
        await legacy.finish(lease.id, 'Creating', { phase: 'Handled', outcome, state: null })
        outcomes.set(lease.id, outcome)
      }
    }
    await Promise.all([0, 150, -150, 30].map(service))
    await Promise.all(replicas.map((replica) => replica.stop()))
    for (const doc of await things(db).find().toArray()) {
      const outcome = outcomes.get(doc._id)
      if (outcome && (doc['phase'] !== 'Handled' || doc['outcome'] !== outcome)) overwritten += 1
    }
    expect({ fromUnder, overwritten }).toEqual({ fromUnder: 0, overwritten: 0 })
    expect(outcomes.size).toBe(300)
    expect(ours).toBeGreaterThan(200)
    expect(observer.losses).toEqual([])
  })
})
