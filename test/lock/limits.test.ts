import { afterEach, describe, expect, test } from '@jest/globals'
import type { Db, Document, MongoClient } from 'mongodb'
import { Limits, silentLogger } from '../../src/index.js'
import { askForSlots, LIMITS_COLLECTION, readLimits, ServerClock, setLimit } from '../../src/lock/index.js'
import { LimitLeases } from '../../src/phases/engine/limits/limit-leases.js'
import { type Clock, sleep, systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { waiterOf } from '../support/waiters.js'
import { clientAt, ManualClock } from './fixture.js'

const BACK = { inUse: 0, slots: 0, starts: 0, leaseMs: 30_000 }

const slotsOf = (db: Db, clock: Clock) =>
  new LimitLeases({
    ...{ db, identity: 'a~1', clock, serverClock: new ServerClock(clock), logger: silentLogger },
    leaseMs: () => 30_000,
  })

const needing = (...limits: string[]) => ({ limits: limits.map((limit) => ({ limit, slots: 1 })) }) as never

/** The burst of a rate after a while without starts: a tenth of the rate, at least one unless that is 0. */
const burstOf = ({ starts }: { readonly starts: number }) => Math.min(starts, Math.max(1, Math.floor(starts / 10)))

describe('the slots of a limit', () => {
  let client: MongoClient | undefined
  afterEach(() => client?.close())
  const database = useDatabase()
  const limitDocuments = () => database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)

  test('wake the phases that waited behind one that no longer wants any', async () => {
    const { db } = database
    await setLimit(db, 'belt', { slots: 1 })
    const clock = new ManualClock()
    const slots = slotsOf(db, clock)
    const belt = needing('belt')
    expect(await slots.take(belt, 1, waiterOf(slots, 'Packing'))).toBe(1)
    expect(await slots.take(belt, 1, waiterOf(slots, 'Painting'))).toBe(0)
    clock.advance(10)
    slots.release(belt, 1)
    // It is Painting's turn.
    expect(await slots.take(belt, 1, waiterOf(slots, 'Creating'))).toBe(0)
    const freed: string[] = []
    slots.onFree((needs) => freed.push(...needs.map(({ limit }) => limit)))
    slots.withdraw(waiterOf(slots, 'Painting'))
    expect(freed).toEqual(['belt'])
    expect(await slots.take(belt, 1, waiterOf(slots, 'Creating'))).toBe(1)
    slots.withdraw(waiterOf(slots, 'Painting'))
    expect(freed).toEqual(['belt'])
    await slots.stop()
  })

  test('are shared by replicas that want more than there is', async () => {
    const { db } = database
    const ask = (by: string, inUse: number, turn: number) =>
      askForSlots(db, 'api', { by, inUse, slots: 40, starts: 0, leaseMs: 30_000, turn })
    await setLimit(db, 'api', { slots: 8 })
    expect(await ask('a~1', 0, 1)).toMatchObject({ slots: 8, othersWait: false, isShort: true })
    expect(await ask('b~1', 0, 1)).toMatchObject({ slots: 0, othersWait: false, isShort: true })
    // Down to its share, as its documents end.
    expect(await ask('a~1', 7, 2)).toMatchObject({ slots: 7, othersWait: true, isShort: false })
    expect(await ask('a~1', 2, 3)).toMatchObject({ slots: 4, isShort: true })
    expect(await ask('b~1', 0, 2)).toMatchObject({ slots: 4, isShort: true })
    // It may have more as soon as it asks.
    expect(await ask('a~1', 1, 4)).toMatchObject({ slots: 4, isShort: true })
    expect(await askForSlots(db, 'api', { ...BACK, by: 'b~1', turn: 3 })).toMatchObject({ slots: 0, isShort: false })
    const one = { by: 'c~1', inUse: 0, slots: 1, starts: 0, leaseMs: 30_000 }
    expect(await askForSlots(db, 'api', { ...one, turn: 1 })).toMatchObject({ slots: 1, isShort: false })
    // Where a document needs two, a single one is of use to nobody.
    const askForTwo = (by: string) =>
      askForSlots(db, 'pairs', { by, inUse: 0, slots: 40, each: 2, starts: 0, leaseMs: 30_000, turn: 1 })
    await setLimit(db, 'pairs', { slots: 3 })
    expect(await askForTwo('a~1')).toMatchObject({ slots: 2 })
    expect(await askForTwo('b~1')).toMatchObject({ slots: 0 })
  })

  test('go to who has waited for a second, longest first, as they become free', async () => {
    const { db } = database
    let turn = 0
    const ask = (by: string, inUse: number, each = 1) => {
      turn += 1
      return askForSlots(db, 'api', { by, inUse, slots: 4 * each, each, starts: 0, leaseMs: 30_000, turn })
    }
    /** All that wait have come earlier. */
    const wait = async (ms: number) => {
      const { waiting } = (await limitDocuments().findOne({ _id: 'api' }))!
      const earlier = waiting.map((one: { since: Date }) => ({ ...one, since: new Date(+one.since - ms) }))
      await limitDocuments().updateOne({ _id: 'api' }, { $set: { waiting: earlier } })
    }
    await setLimit(db, 'api', { slots: 1 })
    expect(await ask('a~1', 0)).toMatchObject({ slots: 1 })
    expect(await ask('b~1', 0)).toMatchObject({ slots: 0, isNext: false }) // nobody else waits
    expect(await ask('a~1', 0)).toMatchObject({ slots: 1 }) // goes on for a while
    await wait(500)
    expect(await ask('c~1', 0)).toMatchObject({ slots: 0, isNext: false })
    expect(await ask('b~1', 0)).toMatchObject({ slots: 0, isNext: true })
    await wait(1_000)
    expect(await ask('a~1', 0)).toMatchObject({ slots: 0, isNext: false })
    expect(await ask('c~1', 0)).toMatchObject({ slots: 0, isNext: false })
    expect(await ask('b~1', 0)).toMatchObject({ slots: 1 })
    expect(await ask('b~1', 0)).toMatchObject({ slots: 0 }) // it has had its turn
    expect(await ask('c~1', 0)).toMatchObject({ slots: 1 })
    // Who has asked once only may never come for it.
    turn += 1
    await askForSlots(db, 'api', { ...BACK, by: 'c~1', turn })
    await limitDocuments().updateOne({ _id: 'api' }, [
      {
        $set: {
          waiting: [
            { by: 'd~1', each: 1, at: { $subtract: ['$$NOW', 1_500] }, since: { $subtract: ['$$NOW', 1_500] } },
          ],
        },
      },
    ])
    expect(await ask('c~1', 0)).toMatchObject({ slots: 1 })

    // A command's time is that of its begin: what was executed before it may have a later one.
    turn += 1
    await askForSlots(db, 'api', { ...BACK, by: 'c~1', turn })
    const later = { at: { $add: ['$$NOW', 500] }, since: { $subtract: ['$$NOW', 2_000] } }
    await limitDocuments().updateOne({ _id: 'api' }, [{ $set: { waiting: [{ by: 'd~1', each: 1, ...later }] } }])
    expect(await ask('c~1', 0)).toMatchObject({ slots: 0, othersWait: true })
    expect(await ask('d~1', 0)).toMatchObject({ slots: 1 })

    // For one that needs several they are kept, too, however long it takes until there are enough; never more than there are in all.
    await limitDocuments().deleteMany({})
    await setLimit(db, 'api', { slots: 3 })
    expect(await ask('a~1', 0)).toMatchObject({ slots: 3 })
    expect(await ask('b~1', 0, 2)).toMatchObject({ slots: 0 })
    await wait(1_500)
    expect(await ask('a~1', 1)).toMatchObject({ slots: 1 })
    await wait(1_000)
    expect(await ask('a~1', 1)).toMatchObject({ slots: 1 })
    expect(await ask('b~1', 0, 2)).toMatchObject({ slots: 2 })
    await ask('b~1', 0, 4)
    await wait(1_500)
    expect(await ask('a~1', 1)).toMatchObject({ slots: 2 })
  })

  test('of a slow rate are not lost with who asks late', async () => {
    const { db } = database
    let turn = 0
    const ask = async () => {
      turn += 1
      const asked = { by: 'a~1', inUse: 0, slots: 5, starts: 5, leaseMs: 30_000, turn }
      return (await askForSlots(db, 'api', asked))!.starts
    }
    const pass = (ms: number) =>
      limitDocuments().updateOne({ _id: 'api' }, [{ $set: { 'bucket.at': { $subtract: ['$bucket.at', ms] } } }])
    await setLimit(db, 'api', { rate: { starts: 10, perMs: 60_000 } })
    expect(await ask()).toBe(1)
    await pass(7_200) // one in 6 s, and part of another
    expect(await ask()).toBe(1)
    await pass(4_900)
    expect(await ask()).toBe(1)
    await pass(3_600_000) // never more at once than a tenth of it
    expect([await ask(), await ask()]).toEqual([1, 0])
    await pass(4_000) // nor soon after, as who asks is late by moments only
    expect(await ask()).toBe(0)
  })

  test('of several limits: a phase holds those it has while it waits for the next, first come, first served', async () => {
    const { db } = database
    await setLimit(db, 'a', { slots: 1 })
    await setLimit(db, 'b', { slots: 2 })
    const clock = new ManualClock()
    const slots = slotsOf(db, clock)
    const [both, a, b] = [needing('a', 'b'), needing('a'), needing('b')]
    expect(await slots.take(b, 2, waiterOf(slots, 'b'))).toBe(2)
    expect(await slots.take(both, 5, waiterOf(slots, 'both'))).toBe(0)
    expect(await slots.take(a, 5, waiterOf(slots, 'a'))).toBe(0) // both has it
    clock.advance(100)
    slots.release(b, 1)
    expect(await slots.take(b, 5, waiterOf(slots, 'b'))).toBe(0) // both came first
    expect(await slots.take(both, 5, waiterOf(slots, 'both'))).toBe(1)
    expect(await slots.take(b, 5, waiterOf(slots, 'b'))).toBe(0)
    slots.release(both, 1)
    clock.advance(100) // it may ask again
    expect(await slots.take(both, 5, waiterOf(slots, 'both'))).toBe(0) // now a came first, and b
    expect(await slots.take(b, 5, waiterOf(slots, 'b'))).toBe(1)
    expect(await slots.take(a, 5, waiterOf(slots, 'a'))).toBe(1)
    slots.release(a, 1)
    expect(await slots.take(both, 5, waiterOf(slots, 'both'))).toBe(0)

    // Nothing is held while only a person can give what is missing.
    await new Limits(db).pause('b', { by: 'ana' })
    slots.refresh()
    clock.advance(1_000)
    expect(await slots.take(both, 5, waiterOf(slots, 'both'))).toBe(0)
    expect(await slots.take(a, 5, waiterOf(slots, 'a'))).toBe(1)
    slots.release(a, 1)
    slots.release(b, 2)
    expect(slots.held().map(({ used }) => used)).toEqual([0, 0])
    await slots.stop()
    const { limits } = await readLimits(db)
    expect(limits.map(({ holders }) => holders)).toEqual([[], []])
  })

  test.each([
    ['paused', (db: Db) => new Limits(db).pause('a', { by: 'ana' })],
    ['lowered', (db: Db) => setLimit(db, 'a', { slots: 0 })],
    ['removed', (db: Db) => new Limits(db).remove('a')],
  ])('held by a phase that waits begin nothing once their limit is %s', async (_what, change) => {
    const { db } = database
    for (const name of ['a', 'b']) await setLimit(db, name, { slots: 1 })
    const clock = new ManualClock()
    const slots = slotsOf(db, clock)
    expect(await slots.take(needing('b'), 1, waiterOf(slots, 'b'))).toBe(1)
    expect(await slots.take(needing('a', 'b'), 1, waiterOf(slots, 'both'))).toBe(0)
    expect(slots.held().map(({ used }) => used)).toEqual([1, 1])
    await change(db)
    clock.advance(2_000)
    slots.release(needing('b'), 1)
    expect(await slots.take(needing('a', 'b'), 1, waiterOf(slots, 'both'))).toBe(0)
    expect(slots.held().map(({ used }) => used)).toEqual([0, 0])
    await slots.stop()
  })

  test('are held by a phase as long as it asks, and not by one that no longer wants any', async () => {
    const { db } = database
    for (const name of ['a', 'b']) await setLimit(db, name, { slots: 1 })
    const clock = new ManualClock()
    const slots = slotsOf(db, clock)
    const used = () => slots.held().map((one) => one.used)
    expect(await slots.take(needing('b'), 1, waiterOf(slots, 'b'))).toBe(1)
    expect(await slots.take(needing('a', 'b'), 1, waiterOf(slots, 'both'))).toBe(0)
    expect(used()).toEqual([1, 1])
    clock.advance(2_100) // it hasn't asked
    await eventually(() => expect(used()).toEqual([1, 0]))
    expect(await slots.take(needing('a', 'b'), 1, waiterOf(slots, 'both'))).toBe(0)
    expect(used()).toEqual([1, 1])
    slots.withdraw(waiterOf(slots, 'both'))
    expect(used()).toEqual([1, 0])
    expect(await slots.take(needing('a'), 1, waiterOf(slots, 'a'))).toBe(1)
    await slots.stop()
  })

  test('are not asked for before each claim by who has got all that it may have', async () => {
    const { db } = database
    client = await clientAt(database.uri, { monitorCommands: true })
    let asked = 0
    client.on('commandStarted', ({ commandName }) => {
      if (commandName === 'findAndModify') asked += 1
    })
    await setLimit(db, 'api', { slots: 3 })
    const clock = new ManualClock()
    const slots = slotsOf(client.db(db.databaseName), clock)
    const phase = { limits: [{ limit: 'api', slots: 1 }] } as never
    expect([await slots.take(phase, 30, waiterOf(slots, 'it')), asked]).toEqual([3, 1])
    expect([await slots.take(phase, 30, waiterOf(slots, 'it')), asked]).toEqual([0, 1])
    slots.release(phase, 2)
    expect([await slots.take(phase, 30, waiterOf(slots, 'it')), asked]).toEqual([2, 1])
    clock.advance(50) // others may have given some back, or want theirs
    expect([await slots.take(phase, 30, waiterOf(slots, 'it')), asked]).toEqual([0, 2])
    const other = { by: 'b~1', inUse: 0, slots: 40, starts: 0, leaseMs: 30_000, turn: 1 }
    expect(await askForSlots(db, 'api', other)).toMatchObject({ slots: 0 })
    clock.advance(50)
    slots.release(phase, 1)
    expect([await slots.take(phase, 30, waiterOf(slots, 'it')), asked]).toEqual([0, 3]) // 2 of 3 are its share
    slots.release(phase, 1)
    expect([await slots.take(phase, 30, waiterOf(slots, 'it')), asked]).toEqual([1, 3])
    slots.release(phase, 2)
    await slots.stop()
    expect(await askForSlots(db, 'api', { ...other, turn: 2 })).toMatchObject({ slots: 3 })
  })

  test('that are too few for what needs two each are there for what needs one', async () => {
    await setLimit(database.db, 'api', { slots: 3 })
    const clock = new ManualClock()
    const slots = slotsOf(database.db, clock)
    const needingEach = (each: number) => ({ limits: [{ limit: 'api', slots: each }] }) as never
    expect(await slots.take(needingEach(2), 5, waiterOf(slots, 'it'))).toBe(1)
    expect(await slots.take(needingEach(2), 5, waiterOf(slots, 'it'))).toBe(0)
    expect(await slots.take(needingEach(1), 5, waiterOf(slots, 'it'))).toBe(1)
    expect(await slots.take(needingEach(2), 5, waiterOf(slots, 'it'))).toBe(0)
    slots.release(needingEach(2), 1)
    slots.release(needingEach(1), 1)
    await slots.stop()
  })

  test('what is given back while a request is under way is free for the next one only', async () => {
    const { db } = database
    client = await clientAt(database.uri, { monitorCommands: true })
    let whenSent: () => void = () => undefined
    client.on('commandStarted', ({ commandName }) => commandName === 'findAndModify' && whenSent())
    await setLimit(db, 'api', { slots: 2 })
    const slots = slotsOf(client.db(db.databaseName), systemClock)
    const phase = { limits: [{ limit: 'api', slots: 1 }] } as never
    expect(await slots.take(phase, 30, waiterOf(slots, 'it'))).toBe(2)
    await setLimit(db, 'api', { slots: 1 })
    whenSent = () => {
      slots.release(phase, 1)
      whenSent = () => undefined
    }
    slots.refresh()
    const taking = slots.take(phase, 30, waiterOf(slots, 'it'))
    expect(await taking).toBe(0)
    slots.release(phase, 1)
    expect(await slots.take(phase, 30, waiterOf(slots, 'it'))).toBe(1)
    slots.release(phase, 1)
    await slots.stop()
    expect((await readLimits(db)).limits[0]!.holders).toEqual([])
  })

  test('a request that arrives late changes nothing', async () => {
    const { db } = database
    const ask = (by: string, inUse: number, slots: number, turn: number) =>
      askForSlots(db, 'api', { by, inUse, slots, starts: 0, leaseMs: 30_000, turn })
    await setLimit(db, 'api', { slots: 5 })
    expect(await ask('a~1', 0, 4, 2)).toMatchObject({ slots: 4 })
    expect(await ask('a~1', 1, 0, 1)).toMatchObject({ slots: 0 })
    expect((await ask('b~1', 0, 5, 1))!.slots).toBe(1)
    expect((await readLimits(db)).limits[0]!.holders).toMatchObject([
      { by: 'a~1', slots: 4 },
      { by: 'b~1', slots: 1 },
    ])
  })

  test('random requests, expiries and changes of the limit: never more granted than there are slots', async () => {
    const { db } = database
    const random = randomNumbers(7)
    const pick = (n: number) => Math.floor(random() * n)
    const has = new Map<string, number>()
    const turns = new Map<string, number>()
    let total = 6
    await setLimit(db, 'api', { slots: total })
    for (let round = 0; round < 400; round += 1) {
      const by = `r${pick(4)}~1`
      if (pick(12) === 0) {
        total = pick(9)
        await setLimit(db, 'api', { slots: total })
        continue
      }
      const turn = (turns.get(by) ?? 0) + 1
      turns.set(by, turn)
      const inUse = pick((has.get(by) ?? 0) + 1)
      const wanted = pick(5)
      const grant = (await askForSlots(db, 'api', { by, inUse, slots: wanted, starts: 0, leaseMs: 60_000, turn }))!
      has.set(by, grant.slots)
      expect(grant.slots).toBeGreaterThanOrEqual(inUse)
      expect(grant.slots).toBeLessThanOrEqual(inUse + wanted)
      const sum = [...has.values()].reduce((all, n) => all + n, 0)
      if (grant.slots > inUse) expect(sum).toBeLessThanOrEqual(total)
    }
  })

  test('random requests of starts, and what is given back: never more granted than a rate allows', async () => {
    const { db } = database
    const random = randomNumbers(11)
    const rate = { starts: 50, perMs: 1_000 }
    await setLimit(db, 'api', { rate })
    let [granted, first] = [0, 0]
    for (let turn = 1; turn <= 120; turn += 1) {
      const starts = Math.floor(random() * 8) - 1
      const by = `r${turn % 3}~1`
      const grant = (await askForSlots(db, 'api', { by, inUse: 0, slots: 0, starts, leaseMs: 5_000, turn }))!
      const { askedAt } = (await limitDocuments().findOne({ _id: 'api' })) as never as { askedAt: Date }
      if (turn === 1) first = askedAt.getTime()
      granted += starts < 0 ? starts : grant.starts
      const elapsedMs = askedAt.getTime() - first
      expect(granted).toBeLessThanOrEqual(burstOf(rate) + (rate.starts * elapsedMs) / rate.perMs)
      if (turn % 10 === 0) await sleep(30)
    }
    expect(granted).toBeGreaterThan(5)
  })
})
