import { describe, expect, test } from '@jest/globals'
import { KNOWN_FOR_MS, LeaseAge, Renewals, ServerClock } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { claimer, interrupted, lockedCollection, ManualClock, PHASE, TERMS } from './fixture.js'

/** So long each command takes, on its way there and on its way back. */
const EACH_WAY_MS = 4_000

describe('the local age of a lease counts from before its command was sent', () => {
  const database = useDatabase()

  async function slow(method: 'updateMany' | 'findOneAndUpdate') {
    const collection = await lockedCollection(database.db)
    await collection.insertMany(['a', 'b', 'c'].map((_id) => ({ _id: _id as never, phase: PHASE })))
    const clock = new ManualClock()
    const passes = () => clock.advance(EACH_WAY_MS)
    const through = interrupted(collection, method, { before: passes, after: passes })
    return { through, clock, replica: await claimer(through, { clock }) }
  }

  test('a claim of some', async () => {
    const { replica } = await slow('updateMany')
    const { claimed } = await replica.claims.claimBatch(PHASE, 10)
    expect(claimed.map(({ lease }) => lease.ageMs())).toEqual(Array(3).fill(2 * EACH_WAY_MS))
  })

  test('a claim of one, whichever is first or by its name', async () => {
    const { replica } = await slow('findOneAndUpdate')
    const first = await replica.claims.claimBatch(PHASE, 1)
    expect(first.claimed.map(({ lease }) => lease.ageMs())).toEqual([2 * EACH_WAY_MS])
    const named = await replica.claims.claimNamed(PHASE, ['b'])
    expect(named.claimed.map(({ lease }) => lease.ageMs())).toEqual([2 * EACH_WAY_MS])
  })

  test('a renewal', async () => {
    const { replica, through, clock } = await slow('updateMany')
    const leases = (await replica.claims.claimBatch(PHASE, 10)).claimed.map(({ lease }) => lease)
    expect(await new Renewals(through, () => TERMS, clock).renew(leases)).toEqual([])
    expect(leases.map((lease) => lease.ageMs())).toEqual(Array(3).fill(2 * EACH_WAY_MS))
  })
})

describe('the one rule for leases of documents, slots and outboxes', () => {
  const ages: [ageMs: number, isAging: boolean, isInDanger: boolean, leftMs: number][] = [
    [0, false, false, 30_000],
    [9_999, false, false, 20_001],
    [10_000, true, false, 20_000],
    [20_000, true, false, 10_000],
    [20_001, true, true, 9_999],
    [40_000, true, true, 0],
  ]
  test.each(ages)('of 30 s, after %d ms', (ageMs, isAging, isInDanger, leftMs) => {
    const clock = new ManualClock()
    const lease = new LeaseAge(clock, clock.monotonicMs(), 30_000)
    clock.advance(ageMs)
    expect([lease.isAging(), lease.isInDanger(), lease.leftMs()]).toEqual([isAging, isInDanger, leftMs])
  })

  test('where it would last for a shorter time now, that counts; a longer one only once it is renewed', () => {
    const clock = new ManualClock()
    const lease = new LeaseAge(clock, clock.monotonicMs(), 30_000)
    clock.advance(5_000)
    expect([lease.isAging(15_000), lease.isInDanger(6_000), lease.isAging(60_000, 4_999)]).toEqual([true, true, false])
    expect(lease.isAging(60_000, 5_000)).toBe(true)
    lease.renewed(clock.monotonicMs(), 60_000)
    clock.advance(19_999)
    expect([lease.isAging(), lease.leftMs()]).toEqual([false, 40_001])
    lease.renewed(0, 1) // an older renewal, answered late
    expect(lease.leftMs()).toBe(40_001)
  })

  test('one that was never granted is in danger, and leaves nothing to use', () => {
    expect(new LeaseAge(new ManualClock()).isInDanger(30_000)).toBe(true)
  })

  test("by the server's clock, leases of others are ended for 5 s after a reading at most", () => {
    const clock = new ManualClock()
    const serverClock = new ServerClock(clock)
    expect(serverClock.validUntil()).toBeUndefined()
    serverClock.saw(new Date(1_000_000), clock.monotonicMs())
    expect(serverClock.validUntil()).toEqual(new Date(1_000_000 + KNOWN_FOR_MS))
    expect(serverClock.validUntil(2_000)).toEqual(new Date(1_002_000))
    expect(serverClock.validUntil(60_000)).toEqual(new Date(1_000_000 + KNOWN_FOR_MS))
  })
})
