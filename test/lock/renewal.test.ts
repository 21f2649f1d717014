import { describe, expect, test } from '@jest/globals'
import { type Collection, Timestamp } from 'mongodb'
import { type Lease, Renewals } from '../../src/lock/index.js'
import { renewUpdate } from '../../src/lock/lease/lease.js'
import { useDatabase } from '../support/database.js'
import {
  again,
  ago,
  checkpoint,
  claimer,
  endOf,
  lockedCollection,
  ManualClock,
  PHASE,
  put,
  read,
  serverNow,
  TERMS,
  unlock,
  writer,
} from './fixture.js'

describe('a renewal', () => {
  const database = useDatabase()

  async function leased(n: number, clock = new ManualClock()) {
    const collection = await lockedCollection(database.db)
    await collection.insertMany(Array.from({ length: n }, (_, i) => ({ _id: i as never, phase: PHASE })))
    const replica = await claimer(collection, { clock })
    const leases: Lease[] = []
    // Two claims, so that a renewal has branches.
    for (const limit of [Math.ceil(n / 2), n]) {
      leases.push(...(await replica.claims.claimBatch(PHASE, limit)).claimed.map((one) => one.lease))
    }
    await age(collection)
    return { collection, leases, clock, replica, renewals: new Renewals(collection, () => TERMS, clock) }
  }
  const age = (collection: Collection) => collection.updateMany({}, [{ $set: { lockedAt: ago(20_000) } }])
  const isFresh = async (collection: Collection, id: unknown) =>
    (await read(collection, id))['lockedAt'].getTime() > (await serverNow(collection)).getTime() - 19_000

  test('renews every lease of every claim with one write, and restarts its age from before it was sent', async () => {
    const { collection, leases, clock, renewals } = await leased(5)
    clock.advance(20_000)
    expect(leases.map((lease) => lease.leftMs())).toEqual([10_000, 10_000, 10_000, 10_000, 10_000])
    expect(await renewals.renew(leases)).toEqual([])
    expect(leases.map((lease) => lease.leftMs())).toEqual([30_000, 30_000, 30_000, 30_000, 30_000])
    for (const { id } of leases) expect(await isFresh(collection, id)).toBe(true)
  })

  const values: [string, unknown, boolean][] = [
    ['older', ago(20_000), true],
    ['missing', '$$REMOVE', true],
    ['a string', 'x', true],
    ['newer by 10 min', ago(-600_000), false],
    ['a Timestamp', new Timestamp({ t: 1, i: 1 }), false],
  ]
  test.each(values)('hole 9: writes the larger of lockedAt and now: %s', async (_name, lockedAt, moves) => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE, lockedAt })
    const before = await read(collection, 'a')
    const now = await serverNow(collection)
    await collection.updateMany({ _id: 'a' as never }, renewUpdate(TERMS))
    const after = (await read(collection, 'a'))['lockedAt']
    if (moves) expect(after.getTime()).toBeGreaterThanOrEqual(now.getTime())
    else expect(after).toEqual(before['lockedAt'])
  })

  test('of a chain that has changed its token, twice, while the renewal was on its way: still renewed', async () => {
    const { collection, leases, renewals } = await leased(2)
    const [lease] = leases as [Lease]
    // What a renewal that is on its way knows of the lease.
    const asSent = Object.assign(Object.create(lease), { token: lease.token }) as Lease
    for (const end of [again(), checkpoint, again()]) await writer(collection).write([endOf(lease, end)])
    await age(collection)
    expect(await renewals.renew([asSent])).toEqual([])
    expect(await isFresh(collection, lease.id)).toBe(true)
  })

  test('never touches another claim of the same replica, nor another replica whose number begins alike', async () => {
    const { collection, leases, renewals, replica } = await leased(3)
    const [lease] = leases as [Lease]
    const { number } = lease.claim
    for (const other of [`${replica.identity}#${number}0.1`, `${replica.identity}x#${number}.1`, `${number}.1`]) {
      await collection.updateOne({ _id: lease.id as never }, { $set: { lockedBy: other } })
      expect(await renewals.renew([lease])).toEqual([lease])
      expect(await isFresh(collection, lease.id)).toBe(false)
    }
  })

  test('hole 8: a claim whose reply was lost is not renewed with the others, and expires', async () => {
    const { collection, leases, renewals } = await leased(4)
    const known = leases.slice(1)
    expect(await renewals.renew(known)).toEqual([])
    expect(await isFresh(collection, leases[0]!.id)).toBe(false)
    for (const { id } of known) expect(await isFresh(collection, id)).toBe(true)
  })

  test('returns the leases that were lost, renews the others, and a lost lease has no time left', async () => {
    const { collection, leases, renewals, clock } = await leased(6)
    await collection.updateOne({ _id: leases[0]!.id as never }, { $set: { lockedBy: 'other#1.1' } })
    await collection.deleteOne({ _id: leases[1]!.id as never })
    await collection.replaceOne({ _id: leases[2]!.id as never }, { phase: PHASE })
    await writer(collection).write([endOf(leases[3]!, unlock)])
    clock.advance(5_000)
    const lost = await renewals.renew(leases)
    expect(new Set(lost)).toEqual(new Set(leases.slice(0, 4)))
    expect(leases.map((lease) => lease.leftMs())).toEqual([0, 0, 0, 0, 30_000, 30_000])
    expect(await isFresh(collection, leases[0]!.id)).toBe(false)
  })

  test('that fails leaves the age alone', async () => {
    const { leases, clock } = await leased(2)
    const failing = { updateMany: async () => Promise.reject(new Error('no')) } as never
    clock.advance(20_000)
    await expect(new Renewals(failing, () => TERMS, clock).renew(leases)).rejects.toThrow('no')
    expect(leases.map((lease) => lease.leftMs())).toEqual([10_000, 10_000])
  })

  test('of nothing asks nothing', async () => {
    expect(await new Renewals(null as never, () => TERMS, new ManualClock()).renew([])).toEqual([])
  })
})
