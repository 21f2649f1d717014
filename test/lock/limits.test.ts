import { afterEach, describe, expect, test } from '@jest/globals'
import type { Db, Document, MongoClient } from 'mongodb'
import { silentLogger } from '../../src/index.js'
import { askForSlots, burstOf, LIMITS_COLLECTION, readLimits, ServerClock, setLimit } from '../../src/lock/index.js'
import { Slots } from '../../src/phases/engine/claim/slots.js'
import { type Clock, sleep, systemClock } from '../../src/time/index.js'
import { useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { clientAt, ManualClock } from './fixture.js'

const BACK = { inUse: 0, slots: 0, starts: 0, leaseMs: 30_000 }

const slotsOf = (db: Db, clock: Clock) =>
  new Slots({
    ...{ db, identity: 'a~1', clock, serverClock: new ServerClock(clock), logger: silentLogger },
    leaseMs: () => 30_000,
  })

describe('the slots of a limit', () => {
  let client: MongoClient | undefined
  afterEach(() => client?.close())
  const database = useDatabase()
  const limitDocuments = () => database.db.collection<Document & { _id: string }>(LIMITS_COLLECTION)

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
    expect([await slots.take(phase, 30), asked]).toEqual([3, 1])
    expect([await slots.take(phase, 30), asked]).toEqual([0, 1])
    slots.give(phase, 2)
    expect([await slots.take(phase, 30), asked]).toEqual([2, 1])
    clock.advance(50) // others may have given some back, or want theirs
    expect([await slots.take(phase, 30), asked]).toEqual([0, 2])
    const other = { by: 'b~1', inUse: 0, slots: 40, starts: 0, leaseMs: 30_000, turn: 1 }
    expect(await askForSlots(db, 'api', other)).toMatchObject({ slots: 0 })
    clock.advance(50)
    slots.give(phase, 1)
    expect([await slots.take(phase, 30), asked]).toEqual([0, 3]) // 2 of 3 are its share
    slots.give(phase, 1)
    expect([await slots.take(phase, 30), asked]).toEqual([1, 3])
    slots.give(phase, 2)
    await slots.stop()
    expect(await askForSlots(db, 'api', { ...other, turn: 2 })).toMatchObject({ slots: 3 })
  })

  test('that are too few for what needs two each are there for what needs one', async () => {
    await setLimit(database.db, 'api', { slots: 3 })
    const clock = new ManualClock()
    const slots = slotsOf(database.db, clock)
    const needing = (each: number) => ({ limits: [{ limit: 'api', slots: each }] }) as never
    expect(await slots.take(needing(2), 5)).toBe(1)
    expect(await slots.take(needing(2), 5)).toBe(0)
    expect(await slots.take(needing(1), 5)).toBe(1)
    expect(await slots.take(needing(2), 5)).toBe(0)
    slots.give(needing(2), 1)
    slots.give(needing(1), 1)
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
    expect(await slots.take(phase, 30)).toBe(2)
    await setLimit(db, 'api', { slots: 1 })
    whenSent = () => {
      slots.give(phase, 1)
      whenSent = () => undefined
    }
    slots.askAnew()
    const taking = slots.take(phase, 30)
    expect(await taking).toBe(0)
    slots.give(phase, 1)
    expect(await slots.take(phase, 30)).toBe(1)
    slots.give(phase, 1)
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
