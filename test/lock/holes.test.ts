import { describe, expect, test } from '@jest/globals'
import type { Collection, Document } from 'mongodb'
import { atTime } from '../../chaos/broken/rewrites.ts'
import { endFilter, endUpdate } from '../../src/lock/end/end-update.js'
import { isDue, type Lease, Renewals, ruleLook, ruleUpdate, type StateRule } from '../../src/lock/index.js'
import { claimFence, renewUpdate, stepFence } from '../../src/lock/lease/lease.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import {
  again,
  ago,
  claimed,
  claimer,
  clientAt,
  endOf,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  ManualClock,
  moveTo,
  PHASE,
  put,
  read,
  serverNow,
  TERMS,
  unlock,
  writer,
} from './fixture.js'

/**
 * One test for each hole that the model of the protocol found (7 and 12, which are the engine's, in holes-engine.test.ts).
 * Where it is cheap, the same scenario runs with the protection taken away, and must go wrong.
 */
describe('holes that the model found', () => {
  const database = useDatabase()
  const RULE: StateRule = { when: 'Deleted', from: [PHASE], moveTo: 'Deleting' }
  const expire = (collection: Collection, id = 'a') =>
    collection.updateOne({ _id: id as never }, [{ $set: { lockedAt: ago(LOCK_TIMEOUT_MS + 1_000) } }])

  describe('1. a state rule (or deadline) that leaves lockedBy behind: a late write overwrites Deleting', () => {
    async function phaseAfterLateWrite(spoil: (update: Document[]) => void): Promise<string> {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE, state: 'Deleted' })
      const { lease } = await claimed(collection)
      await expire(collection)
      const [filter, update] = ruleUpdate(TERMS, RULE, ['a'])
      spoil(update)
      expect((await collection.updateMany(filter, update)).modifiedCount).toBe(1)
      await writer(collection).write([endOf(lease, moveTo('Created'))])
      return (await read(collection, 'a'))['phase']
    }
    test('the rule removes it: Deleting stays', async () => {
      expect(await phaseAfterLateWrite(() => undefined)).toBe('Deleting')
    })
    test('negative control: a rule that keeps it', async () => {
      expect(await phaseAfterLateWrite((update) => delete update[0]!['$set'].lockedBy)).toBe('Created')
    })
    test("a deadline's move removes it as well", async () => {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE })
      const { lease } = await claimed(collection)
      const { token } = lease
      await writer(collection).write([
        endOf(lease, { ...(moveTo('Failed') as never as object), by: 'deadline' } as never),
      ])
      expect(await read(collection, 'a')).not.toHaveProperty('lockedBy')
      expect(await collection.countDocuments({ lockedBy: token })).toBe(0)
    })
  })

  describe("2. again with the same token: a given-up handler's late outcome matches the next step", () => {
    async function lateOutcomeMatches(spoil: (lease: Lease) => void): Promise<boolean> {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE })
      const { lease } = await claimed(collection)
      const late = { token: lease.token, end: moveTo('written late'), nextToken: null, members: [endOf(lease, unlock)] }
      spoil(lease)
      await writer(collection).write([endOf(lease, again('step 2'))])
      const { matchedCount } = await collection.updateOne(
        { _id: 'a' as never, ...endFilter(TERMS, late) },
        endUpdate(TERMS, late),
      )
      return matchedCount > 0
    }
    test('every step has a token of its own', async () => {
      expect(await lateOutcomeMatches(() => undefined)).toBe(false)
    })
    test('negative control: one token a claim', async () => {
      const onePerClaim = (lease: Lease) => {
        lease.claim.nextToken = () => lease.token
      }
      expect(await lateOutcomeMatches(onePerClaim)).toBe(true)
    })
  })

  test('3. held and due both excluding equality: at the boundary a rule takes what nobody may claim yet', async () => {
    const collection = await lockedCollection(database.db)
    const now = new Date('2026-05-05T12:00:00.000Z')
    const boundary = now.getTime() - LOCK_TIMEOUT_MS
    for (const [lockedAt, isHeld] of [
      [boundary - 1, false],
      [boundary, true],
      [boundary + 1, true],
    ] as const) {
      const document = { _id: 'a', phase: PHASE, state: 'Deleted', lockedBy: 'x#1.1', lockedAt: new Date(lockedAt) }
      await put(collection, document)
      const claimable =
        (await collection.countDocuments({ phase: PHASE, ...atTime({ $expr: isDue(TERMS) }, now) })) === 1
      const looked = (await collection.find(atTime(ruleLook(TERMS, RULE), now)).toArray()).length === 1
      const ruled = (await collection.updateMany(...atTime(ruleUpdate(TERMS, RULE, ['a']), now))).modifiedCount === 1
      expect({ claimable, looked, ruled }).toEqual({ claimable: !isHeld, looked: !isHeld, ruled: !isHeld })
      // Negative control: a rule that excludes equality from held, as due does, takes it at the boundary.
      await put(collection, document)
      const strict = { $or: [{ lockedBy: null }, { lockedAt: { $not: { $gt: new Date(boundary) } } }] }
      expect(await collection.countDocuments({ state: 'Deleted', ...strict })).toBe(lockedAt <= boundary ? 1 : 0)
    }
  })

  describe('4. again restarts the local age but leaves lockedAt alone: two replicas believe in their lease', () => {
    async function believersAfterAgain(restartsAge: boolean): Promise<number> {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE })
      const clock = new ManualClock()
      const mine = await claimed(collection, await claimer(collection, { clock }))
      clock.advance(20_000)
      await collection.updateOne({ _id: 'a' as never }, [{ $set: { lockedAt: ago(20_000) } }])
      await writer(collection).write([endOf(mine.lease, again())])
      if (restartsAge) mine.lease.renewed(clock.monotonicMs())
      clock.advance(11_000)
      await collection.updateOne({ _id: 'a' as never }, [{ $set: { lockedAt: ago(31_000) } }])
      const theirs = await claimed(collection, await claimer(collection, { clock, name: 'other' }))
      return [mine.lease, theirs.lease].filter((lease) => lease.leftMs() > 0).length
    }
    test('the age counts on over a chain', async () => {
      expect(await believersAfterAgain(false)).toBe(1)
    })
    test('negative control: an age that again restarts', async () => {
      expect(await believersAfterAgain(true)).toBe(2)
    })
  })

  describe("5. a grouped again that matched fewer than it sent, not read back: a step on somebody else's document", () => {
    async function wrongBelievers(through: (collection: Collection, sent: number) => Collection): Promise<unknown[]> {
      const collection = await lockedCollection(database.db)
      await put(collection, ...['a', 'b', 'c'].map((_id) => ({ _id, phase: PHASE })))
      const { claims } = await claimer(collection)
      const leases = (await claims.claimBatch(PHASE, 3)).claimed.map((one) => one.lease)
      await collection.updateOne({ _id: 'b' as never }, { $set: { lockedBy: 'other#1.1' } })
      await writer(through(collection, 3)).write(leases.map((lease) => endOf(lease, again())))
      const stored = await collection.find().toArray()
      const ownerOf = new Map<unknown, unknown>(stored.map((document) => [document._id, document['lockedBy']]))
      return leases.filter((lease) => lease.leftMs() > 0 && ownerOf.get(lease.id) !== lease.token).map(({ id }) => id)
    }
    test("who is still the replica's own is read back", async () => {
      expect(await wrongBelievers((collection) => collection)).toEqual([])
    })
    test('negative control: a writer that takes the count for right', async () => {
      const blind = (collection: Collection, sent: number) =>
        new Proxy(collection, {
          get: (target, name) =>
            name === 'updateMany'
              ? async (...args: Parameters<Collection['updateMany']>) => {
                  await target.updateMany(...args)
                  return { matchedCount: sent }
                }
              : Reflect.get(target, name).bind(target),
        })
      expect(await wrongBelievers(blind)).toEqual(['b'])
    })
  })

  describe("6. the claim's sort order: a crashed document never comes up while others unlock to epoch each time", () => {
    async function comesUp(batch: boolean): Promise<boolean> {
      const collection = await lockedCollection(database.db)
      await collection.insertMany(Array.from({ length: 12 }, (_, n) => ({ _id: n as never, phase: PHASE })))
      await put(collection, { _id: 'crashed', phase: PHASE, lockedAt: ago(31_000), lockedBy: 'dead#1.1' })
      const { claims } = await claimer(collection)
      for (let round = 0; round < 15; round += 1) {
        const due = { phase: PHASE, lockedAt: { $not: { $gte: ago(LOCK_TIMEOUT_MS) } } }
        const oldest = () => collection.find(due).sort({ lockedAt: 1, updatedAt: 1 }).limit(1).toArray()
        const { claimed: won } = batch
          ? await claims.claimBatch(PHASE, 4)
          : await claims.claimNamed(PHASE, [(await oldest())[0]!._id])
        if (won.some(({ lease }) => lease.id === 'crashed')) return true
        await writer(collection).write(won.map(({ lease }) => endOf(lease, unlock)))
      }
      return false
    }
    test('a quarter of a batch belongs to crashed and woken documents', async () => {
      expect(await comesUp(true)).toBe(true)
    })
    test('negative control: strictly by lockedAt', async () => {
      expect(await comesUp(false)).toBe(false)
    })
  })

  test('8. renewing by replica instead of by running step: a claim whose reply was lost is held for ever', async () => {
    const collection = await lockedCollection(database.db)
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri, { retryWrites: false })
    try {
      await put(collection, { _id: 'a', phase: PHASE }, { _id: 'b', phase: PHASE })
      const theirs = client.db(database.db.databaseName).collection(collection.collectionName)
      const replica = await claimer(theirs, { isOver: () => true })
      const { lease } = await claimed(collection, replica)
      void proxy.cutAfter('findAndModify')
      await expect(replica.claims.claimBatch(PHASE, 1)).rejects.toThrow() // it isn't read back
      const lost = await collection.findOne({ _id: { $ne: lease.id as never } })
      expect(lost!['lockedBy']).toMatch(new RegExp(`^${replica.identity}#`))
      const ageAll = () => collection.updateMany({}, [{ $set: { lockedAt: ago(LOCK_TIMEOUT_MS + 1_000) } }])
      await ageAll()
      expect(await new Renewals(collection, () => TERMS, replica.clock).renew([lease])).toEqual([])
      expect((await claimed(collection)).lease.id).toBe(lost!._id)
      // Negative control: "all that is mine" keeps it from everybody.
      await collection.updateOne({ _id: lost!._id }, { $set: { lockedBy: lost!['lockedBy'] } })
      await ageAll()
      await collection.updateMany({ lockedBy: { $regex: `^${replica.identity}#` } }, renewUpdate(TERMS))
      expect(await collection.countDocuments({ $expr: isDue(TERMS) })).toBe(0)
    } finally {
      await client.close()
      await proxy.stop()
    }
  })

  test('9. a renewal that waited in the server writes an older $$NOW over a newer lockedAt', async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE })
    const { lease, document } = await claimed(collection)
    const before = new Date(document['lockedAt'].getTime() - 20_000)
    await collection.updateMany({ lockedBy: lease.token }, atTime(renewUpdate(TERMS), before))
    expect((await read(collection, 'a'))['lockedAt']).toEqual(document['lockedAt'])
    // Negative control: plain $$NOW.
    await collection.updateMany({ lockedBy: lease.token }, [{ $set: { lockedAt: before } }])
    expect((await read(collection, 'a'))['lockedAt']).toEqual(before)
  })

  test("10. fence equal or lower after a replacement a millisecond later, or after the server's clock stepped back", async () => {
    const collection = await lockedCollection(database.db)
    const start = await serverNow(collection)
    const set = async (fence: Document, ms: number): Promise<number> => {
      const now = new Date(start.getTime() + ms)
      await collection.updateOne({ _id: 'a' as never }, atTime([{ $set: { fence } }], now), { upsert: true })
      return Number((await read(collection, 'a'))['fence'])
    }
    const fences = [await set(claimFence, 0)]
    for (let step = 0; step < 900; step += 1) if (step % 90 === 0) fences.push(await set(stepFence, 0))
    await collection.replaceOne({ _id: 'a' as never }, { phase: PHASE })
    fences.push(await set(claimFence, 1))
    // The clock has stepped back by a minute, on the same document.
    fences.push(await set(claimFence, -60_000), await set(stepFence, -60_000))
    expect(fences.every((fence, n) => n === 0 || fence > fences[n - 1]!)).toBe(true)
    // Negative control: without the factor of 1,000 eleven steps in a millisecond overtake the next one's claim.
    const plain = [start.getTime() + 10, start.getTime() + 1]
    expect(plain[1]).toBeLessThan(plain[0]!)
  })
})
