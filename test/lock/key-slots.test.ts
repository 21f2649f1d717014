import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { silentLogger } from '../../src/index.js'
import {
  askForKeys,
  askForSlots,
  ClockSteps,
  declareLimit,
  forgetKeys,
  forgetOldKeys,
  LIMITS_COLLECTION,
  pauseLimit,
  readLimits,
  removeLimit,
  ServerClock,
  setLimit,
} from '../../src/lock/index.js'
import { LimitLeases } from '../../src/phases/engine/limits/limit-leases.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { waiterOf } from '../support/waiters.js'
import { clientAt, ManualClock } from './fixture.js'

describe('the slots of a key', () => {
  const database = useDatabase()
  const key = { slots: 1 }
  const stored = () => database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION).findOne({ _id: 'k' })
  const holders = async (_id: string) =>
    (await database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION).findOne({ _id }))?.[
      'holders'
    ] as unknown
  const ask = async (by: string, inUse: number, slots: number, turn: number) => {
    const request = { by, inUse, slots, starts: 0, leaseMs: 30_000, turn, key }
    return (await askForKeys(database.db, new Map([['k', request]]))).get('k')!
  }

  test('are not forgotten by a request that arrives late', async () => {
    expect(await ask('a~1', 0, 1, 1)).toMatchObject({ slots: 1 })
    // Sent before the next request, and executed after it.
    const forget = () => forgetKeys(database.db, ['k'], 'a~1', 2)
    expect(await ask('a~1', 0, 1, 3)).toMatchObject({ slots: 1 })
    expect(await forget()).toBe(false)
    expect(await ask('b~1', 0, 1, 1)).toMatchObject({ slots: 0 })
    await ask('b~1', 0, 0, 2)
    await ask('a~1', 0, 0, 4)
    expect(await forgetKeys(database.db, ['k'], 'a~1', 5)).toBe(true)
    expect(await stored()).toBeNull()
  })

  test.each(['api', 'k'])(
    'that others have got while this process stood still are known to be lost, until they are given back (%s)',
    async (limit) => {
      await setLimit(database.db, limit, { slots: 1 })
      const clock = new ManualClock()
      const slots = new LimitLeases({
        ...{ db: database.db, identity: 'a~1', clock, serverClock: new ServerClock(clock), logger: silentLogger },
        leaseMs: () => 30_000,
      })
      const phase = { limits: [{ limit, slots: 1, ...(limit === 'k' && { key: { of: 'k' } }) }] } as never
      expect(await slots.take(phase, 1, waiterOf(slots, 'it'))).toBe(1)
      clock.advance(35_000)
      const limits = database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)
      await limits.updateOne({ _id: limit }, { $set: { 'holders.0.until': new Date(0) } })
      const other = { by: 'b~1', slots: 1, starts: 0, leaseMs: 30_000 }
      expect(await askForSlots(database.db, limit, { ...other, inUse: 0, turn: 1 })).toMatchObject({ slots: 1 })
      // It says what it has in use, and has no more than that.
      expect(await slots.take(phase, 1, waiterOf(slots, 'it'))).toBe(0)
      expect(slots.areInDanger(phase)).toBe(true)
      slots.release(phase, 1)
      expect(slots.areInDanger(phase)).toBe(false)
      await askForSlots(database.db, limit, { ...other, inUse: 0, slots: 0, turn: 2 })
      expect(await slots.take(phase, 1, waiterOf(slots, 'it'))).toBe(1)
      expect(slots.areInDanger(phase)).toBe(false)
      slots.release(phase, 1)
      await slots.stop()
    },
  )

  test.each([
    ['lowered', () => setLimit(database.db, 'api', { slots: 1 })],
    ['paused', () => pauseLimit(database.db, 'api', { by: 'ana', reason: null, end: null })],
  ] as const)(
    'of a limit that was %s are not put to use again as they are given back, one by one',
    async (_what, change) => {
      await setLimit(database.db, 'api', { slots: 3 })
      const clock = new ManualClock()
      const slots = new LimitLeases({
        ...{ db: database.db, identity: 'a~1', clock, serverClock: new ServerClock(clock), logger: silentLogger },
        leaseMs: () => 30_000,
      })
      const phase = { limits: [{ limit: 'api', slots: 1 }] } as never
      expect(await slots.take(phase, 3, waiterOf(slots, 'it'))).toBe(3)
      await change()
      expect(await slots.take(phase, 1, waiterOf(slots, 'it'))).toBe(0) // from now on it knows
      for (let i = 0; i < 2; i += 1) {
        slots.release(phase, 1)
        expect(await slots.take(phase, 1, waiterOf(slots, 'it'))).toBe(0)
      }
      slots.release(phase, 1)
      expect(await slots.take(phase, 1, waiterOf(slots, 'it'))).toBe(_what === 'paused' ? 0 : 1)
      await slots.stop()
    },
  )

  test.each(['api', 'k'])(
    "are not taken from others by a forward step of the server's clock that no look has found yet (%s)",
    async (limit) => {
      await setLimit(database.db, limit, { slots: 1 })
      const proxy = await TcpProxy.start(database.uri)
      const client = await clientAt(proxy.uri)
      try {
        const clock = new ManualClock()
        const serverClock = new ServerClock(clock)
        const slotsOf = (identity: string) =>
          new LimitLeases({
            ...{ db: client.db(database.db.databaseName), identity, clock, serverClock, logger: silentLogger },
            leaseMs: () => 30_000,
          })
        const phase = { limits: [{ limit, slots: 1, ...(limit === 'k' && { key: { of: 'k' } }) }] } as never
        const [a, b] = [slotsOf('a~1'), slotsOf('b~1')]
        serverClock.saw(new Date(), clock.monotonicMs())
        expect(await a.take(phase, 1, waiterOf(a, 'it'))).toBe(1)
        proxy.stepClock(600_000)
        expect(await b.take(phase, 1, waiterOf(b, 'it'))).toBe(0)
        clock.advance(11_000)
        await eventually(async () => expect(await holders(limit)).toMatchObject([{ by: 'a~1', slots: 1 }]))
        a.release(phase, 1)
        await a.stop()
        serverClock.saw(new Date(Date.now() + 600_000), clock.monotonicMs())
        expect(await b.take(phase, 1, waiterOf(b, 'it'))).toBe(1)
        b.release(phase, 1)
        await b.stop()
      } finally {
        await client.close()
        await proxy.stop()
      }
    },
  )

  test.each([
    ['api', 'that no look has found'],
    ['api', "that isn't confirmed"],
    ['k', 'that no look has found'],
    ['k', "that isn't confirmed"],
  ])(
    "are not free (%s) once the server's clock is set back after a forward step %s, whoever has asked meanwhile",
    async (limit, when) => {
      await setLimit(database.db, limit, { slots: 1 })
      const proxy = await TcpProxy.start(database.uri)
      const client = await clientAt(proxy.uri)
      try {
        const clock = new ManualClock()
        const serverClock = new ServerClock(clock, new ClockSteps(clock, 60_000, () => undefined))
        const slotsOf = (identity: string) =>
          new LimitLeases({
            ...{ db: client.db(database.db.databaseName), identity, clock, serverClock, logger: silentLogger },
            leaseMs: () => 30_000,
          })
        const phase = { limits: [{ limit, slots: 1, ...(limit === 'k' && { key: { of: 'k' } }) }] } as never
        const [a, b] = [slotsOf('a~1'), slotsOf('b~1')]
        serverClock.saw(new Date(), clock.monotonicMs())
        expect(await a.take(phase, 1, waiterOf(a, 'it'))).toBe(1)
        proxy.stepClock(600_000)
        if (when === "that isn't confirmed") serverClock.saw(new Date(Date.now() + 600_000), clock.monotonicMs())
        expect(await b.take(phase, 1, waiterOf(b, 'it'))).toBe(0)
        proxy.stepClock(-600_000)
        serverClock.saw(new Date(), clock.monotonicMs())
        expect(await b.take(phase, 1, waiterOf(b, 'it'))).toBe(0)
        a.release(phase, 1)
        await Promise.all([a.stop(), b.stop()])
      } finally {
        await client.close()
        await proxy.stop()
      }
    },
  )

  test.each(['api', 'k'])(
    'are renewed by the lease that they have, when lockTimeouts become longer (%s)',
    async (limit) => {
      await setLimit(database.db, limit, { slots: 1 })
      const clock = new ManualClock()
      let leaseMs = 30_000
      const slots = new LimitLeases({
        ...{ db: database.db, identity: 'a~1', clock, serverClock: new ServerClock(clock), logger: silentLogger },
        leaseMs: () => leaseMs,
      })
      const phase = { limits: [{ limit, slots: 1, ...(limit === 'k' && { key: { of: 'k' } }) }] } as never
      expect(await slots.take(phase, 1, waiterOf(slots, 'it'))).toBe(1)
      leaseMs = 600_000
      clock.advance(21_000)
      expect(slots.areInDanger(phase)).toBe(true)
      await eventually(() => expect(slots.areInDanger(phase)).toBe(false))
      expect(await holders(limit)).toMatchObject([{ by: 'a~1', slots: 1, ms: 600_000 }])
      clock.advance(21_000)
      expect(slots.areInDanger(phase)).toBe(false)
      slots.release(phase, 1)
      await slots.stop()
    },
  )

  test("are not forgotten by a forward step of the server's clock", async () => {
    const proxy = await TcpProxy.start(database.uri)
    const client = await clientAt(proxy.uri)
    try {
      await ask('a~1', 0, 1, 1)
      proxy.stepClock(7_200_000)
      const db = client.db(database.db.databaseName)
      expect(await forgetOldKeys(db, new Date(Date.now() + 5_000))).toBe(0)
      expect(await ask('b~1', 0, 1, 1)).toMatchObject({ slots: 0 })
    } finally {
      await client.close()
      await proxy.stop()
    }
  })

  test('of a replica that was killed before the clock was set back are free when their lease would have ended', async () => {
    const limits = database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)
    expect(await ask('a~1', 0, 1, 1)).toMatchObject({ slots: 1 })
    const setBack = new Date(Date.now() + 7_200_000)
    await limits.updateOne({ _id: 'k' }, { $set: { 'holders.0.until': setBack } })
    expect(await ask('b~1', 0, 1, 1)).toMatchObject({ slots: 0 })
    const { until } = (await stored())!['holders'][0] as { until: Date }
    expect(until.getTime() - Date.now()).toBeLessThan(31_000)
    // Its next request leaves it as it is.
    expect(await ask('b~1', 0, 1, 2)).toMatchObject({ slots: 0 })
    expect((await stored())!['holders'][0].until).toEqual(until)
  })

  test('in use stay so where their limit is removed, with what is declared; and those of other limits until they are given back', async () => {
    const { db } = database
    expect(await ask('a~1', 0, 1, 1)).toMatchObject({ slots: 1 })
    await setLimit(db, 'k', { slots: 5, rate: { starts: 9, perMs: 1_000 } })
    expect(await removeLimit(db, 'k')).toBe(true)
    expect(await ask('b~1', 0, 1, 1)).toMatchObject({ slots: 0, limit: { slots: 1, rate: null } })
    expect(await ask('a~1', 1, 0, 2)).toMatchObject({ slots: 1 })

    const askApi = (by: string, inUse: number, turn: number) =>
      askForSlots(db, 'api', { by, inUse, slots: 2, starts: 0, leaseMs: 30_000, turn })
    const removeUnused = () => forgetOldKeys(db, new Date(Date.now() + 1_000))
    await declareLimit(db, 'api', 2)
    expect(await askApi('a~1', 0, 1)).toMatchObject({ slots: 2 })
    expect(await removeLimit(db, 'api')).toBe(true)
    expect(await removeUnused()).toBe(0)
    expect(await askApi('b~1', 0, 1)).toMatchObject({ slots: 0 })
    await setLimit(db, 'api', { slots: 2 })
    expect(await askApi('b~1', 0, 2)).toMatchObject({ slots: 0 })
    expect(await removeLimit(db, 'api')).toBe(true)
    await askForSlots(db, 'api', { by: 'a~1', inUse: 0, slots: 0, starts: 0, leaseMs: 30_000, turn: 3 })
    expect(await askApi('b~1', 0, 3)).toMatchObject({ slots: 0 })
    // Somebody may have set it again by hand.
    await database.db.collection<{ _id: string }>(LIMITS_COLLECTION).updateOne({ _id: 'api' }, { $set: { slots: 2 } })
    expect(await removeUnused()).toBe(0)
    expect((await readLimits(db, ['api'])).limits).toHaveLength(1)
    await database.db.collection<{ _id: string }>(LIMITS_COLLECTION).updateOne({ _id: 'api' }, { $unset: { slots: 1 } })
    expect((await readLimits(db, ['api'])).limits).toHaveLength(0) // nobody has any
    expect(await removeUnused()).toBe(1)
    expect(await askApi('b~1', 0, 4)).toBeUndefined()
    expect(await removeLimit(db, 'api')).toBe(false)
  })

  test('given back together leave no limit behind, though another replica needs one of them', async () => {
    const asked = (by: string, slots: number, turn: number) => (name: string) =>
      [name, { by, inUse: 0, slots, starts: 0, leaseMs: 30_000, turn, key }] as const
    const names = ['k', 'l', 'hot']
    await askForKeys(database.db, new Map(names.map(asked('a~1', 1, 1))))
    await askForKeys(database.db, new Map(['hot'].map(asked('b~1', 1, 1))))
    expect(await forgetKeys(database.db, names, 'a~1', 2)).toBe(false)
    await askForKeys(database.db, new Map(names.map(asked('a~1', 0, 3))))
    expect(await database.db.collection(LIMITS_COLLECTION).distinct('_id')).toEqual(['hot'])
    expect(await holders('hot')).toEqual([])
  })

  test('that are in use are there again with the next request where somebody has removed their limit', async () => {
    await ask('a~1', 0, 1, 1)
    await database.db.collection(LIMITS_COLLECTION).deleteMany({})
    expect(await ask('a~1', 1, 0, 2)).toMatchObject({ slots: 1 })
    expect(await ask('b~1', 0, 1, 1)).toMatchObject({ slots: 0 })
  })
})
