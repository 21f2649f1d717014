import { describe, expect, test } from '@jest/globals'
import { type Db, type Document, MongoClient } from 'mongodb'
import { ACKS_COLLECTION } from '../../../src/operations/causes/acks.js'
import { quietText } from '../../../src/operations/causes/quiet.js'
import {
  ackCause,
  causeNamed,
  causes,
  NotFound,
  Refused,
  type System,
  UsageError,
  unackCause,
} from '../../../src/operations/index.js'
import type { Census, TroubleGroup } from '../../../src/phases/index.js'
import { useDatabase } from '../../support/database.js'
import { thing, thingOf } from '../../support/thing.js'
import { BulkWorld } from '../bulk-world.js'
import { censusOf, groupOf as groupAt } from './census.js'

const database = useDatabase()
const HOUR = 3_600_000
/** One that began before any acknowledgement, whatever the date is. */
const groupOf = (fields: Partial<TroubleGroup> = {}) => groupAt({ firstSeen: new Date('2020-01-01'), ...fields })

/** A world in which a replica has registered things and a census says what the test wants. */
async function world(fields: Partial<Census> = {}) {
  const { db } = database
  const bulk = await BulkWorld.of(db)
  const system: System = { ...bulk.system, audit: { by: 'ana', reason: 'test' } }
  const write = (fields: Partial<Census>) => census(db, fields)
  await write(fields)
  return { db, bulk, system, write }
}
async function census(db: Db, fields: Partial<Census>): Promise<void> {
  const { _id, ...found } = censusOf('thing', new Date(), fields)
  await db.collection<Document & { _id: string }>('phaselock.census').replaceOne({ _id }, found, { upsert: true })
}
const rowOf = async (system: System, kind = 'park') => {
  const row = (await causes(system)).rows.find((one) => one.kind === kind)
  if (!row) throw new Error(`expected a row of kind ${kind}`)
  return row
}

describe('acknowledgements', () => {
  test('one goes to the end and counts no longer; it is kept with its author, and the audit has it', async () => {
    const { system, db } = await world({ parks: [groupOf()], errors: [groupOf({ documents: { n: 3 } })] })
    const before = await causes(system)
    expect(before.rows.map(({ kind }) => kind)).toEqual(['no-replica', 'park', 'error'])
    expect(before.needsYou).toBe(3)
    const park = before.rows[1]!
    await ackCause(system, park.id, { by: 'ana', until: '4h', note: 'the printer is on its way' })
    const after = await causes(system)
    expect(after.rows.map(({ kind }) => kind)).toEqual(['no-replica', 'error', 'park'])
    expect(after.rows[2]).toMatchObject({
      id: park.id,
      ack: { by: 'ana', note: 'the printer is on its way', doubled: false },
    })
    expect(after.needsYou).toBe(2)
    const [entry] = await db.collection('phaselock.audit').find({ action: 'causes ack' }).toArray()
    expect(entry).toMatchObject({
      by: 'ana',
      outcome: 'done',
      lifecycle: 'thing',
      target: `cause ${park.id}: parked in Packing: no paper`,
    })
    expect(await db.collection(ACKS_COLLECTION).indexes()).toContainEqual(
      expect.objectContaining({ expireAfterSeconds: 0 }),
    )
  })

  test('it is back once the documents have doubled, and then another person may take it', async () => {
    const { system, write } = await world({ parks: [groupOf({ documents: { n: 2 } })] })
    const { id } = await rowOf(system)
    await ackCause(system, id, { by: 'ana', until: '4h' })
    await write({ parks: [groupOf({ documents: { n: 3 } })] })
    expect(await rowOf(system)).toMatchObject({ ack: { doubled: false } })
    await expect(ackCause(system, id, { by: 'bob', until: '1h' })).rejects.toThrow(Refused)
    await write({ parks: [groupOf({ documents: { n: 4 } })] })
    const { rows, needsYou } = await causes(system)
    expect(rows[1]).toMatchObject({ id, ack: { by: 'ana', doubled: true } })
    expect(needsYou).toBe(2)
    await ackCause(system, id, { by: 'bob', until: '1h' })
    expect(await rowOf(system)).toMatchObject({ ack: { by: 'bob', doubled: false } })
  })

  test('one of more documents than are counted is back once the count has no end, and then stays', async () => {
    const { system, write } = await world({ parks: [groupOf({ documents: { n: 6_000 } })] })
    const { id } = await rowOf(system)
    await ackCause(system, id, { by: 'ana', until: '4h' })
    await write({ parks: [groupOf({ documents: { n: 10_000, more: true } })] })
    expect(await rowOf(system)).toMatchObject({ ack: { doubled: true } })
    await ackCause(system, id, { by: 'bob', until: '1h' })
    expect(await rowOf(system)).toMatchObject({ ack: { by: 'bob', doubled: false } })
    await expect(ackCause(system, id, { by: 'ana', until: '1h' })).rejects.toThrow(Refused)
    await expect(ackCause(system, id, { by: 'bob', until: '25h' })).rejects.toThrow(
      `cause ${id} has 10,000+ documents, and whether they double is not counted: acknowledge it for at most 1 d`,
    )
  })

  test('one does not cover what began anew after it', async () => {
    const { system, write } = await world({ parks: [groupOf()] })
    const { id } = await rowOf(system)
    const { ack } = await ackCause(system, id, { by: 'ana', until: '4h' })
    await write({ parks: [groupOf({ firstSeen: new Date(ack.since.getTime() + 1) })] })
    expect((await rowOf(system)).ack).toBeUndefined()
    await ackCause(system, id, { by: 'bob', until: '1h' })
    expect(await rowOf(system)).toMatchObject({ ack: { by: 'bob' } })
  })

  test('it is over at its time, by the clock of the server, and is forgotten with the next one', async () => {
    const { system, db } = await world({ parks: [groupOf()], errors: [groupOf({ documents: { n: 3 } })] })
    const { id } = await rowOf(system)
    await ackCause(system, id, { by: 'ana', until: new Date(Date.now() + HOUR) })
    await db
      .collection<Document & { _id: string }>(ACKS_COLLECTION)
      .updateOne({ _id: id }, { $set: { until: new Date(Date.now() - 1_000) } })
    expect((await rowOf(system)).ack).toBeUndefined()
    await expect(unackCause(system, id)).rejects.toThrow(`cause ${id} isn't acknowledged`)
    await ackCause(system, (await rowOf(system, 'error')).id, { by: 'ana', until: '1h' })
    expect(await db.collection(ACKS_COLLECTION).countDocuments()).toBe(1)
  })

  test('of two people at the same time one has it, and the other learns who', async () => {
    const { system } = await world({ parks: [groupOf()] })
    const { id } = await rowOf(system)
    const both = await Promise.allSettled(['ana', 'bob'].map((by) => ackCause(system, id, { by, until: '1h' })))
    const [winner] = both.flatMap((one) => (one.status === 'fulfilled' ? [one.value.ack.by] : []))
    const lost = both.flatMap((one) => (one.status === 'rejected' ? [one.reason as Refused] : []))
    expect(lost).toHaveLength(1)
    expect(lost[0]).toBeInstanceOf(Refused)
    expect(lost[0]!.obstacle).toEqual({ reason: 'acknowledgedByAnother', id, by: winner })
    expect((await rowOf(system)).ack!.by).toBe(winner)
    await ackCause(system, id, { by: winner!, until: '2h', note: 'longer' })
    expect((await rowOf(system)).ack).toMatchObject({ by: winner, note: 'longer' })
  })

  test('anybody may end it; the audit says who', async () => {
    const { system, db } = await world({ parks: [groupOf()] })
    const { id } = await rowOf(system)
    await ackCause(system, id, { by: 'bob', until: '1h' })
    expect(await unackCause(system, id)).toMatchObject({ cause: id, by: 'bob' })
    expect((await rowOf(system)).ack).toBeUndefined()
    await expect(unackCause(system, id)).rejects.toThrow(NotFound)
    expect(await db.collection('phaselock.audit').findOne({ action: 'causes unack' })).toMatchObject({
      by: 'ana',
      outcome: 'done',
      before: { by: 'bob' },
    })
  })

  test('only what is there can be acknowledged, for 30 days at most', async () => {
    const { system } = await world({
      parks: [groupOf({ cause: 'aaaaaaaaaaaa' })],
      errors: [groupOf({ cause: 'aaaaaaaaaaaa', documents: { n: 3 } })],
    })
    const ack = (id: string, fields: object = {}) => ackCause(system, id, { by: 'ana', until: '1h', ...fields })
    await expect(ack('ffffffffffff')).rejects.toThrow('there is no cause ffffffffffff now')
    await expect(ack('aaaaaaaaaaaa')).rejects.toThrow(/^several rows have the cause aaaaaaaaaaaa: /)
    const { id } = await rowOf(system)
    for (const until of ['0s', '31d', new Date(Date.now() - 1), new Date(Date.now() + 31 * 24 * HOUR)])
      await expect(ack(id, { until })).rejects.toThrow(UsageError)
    await expect(ack(id, { by: ' ' })).rejects.toThrow(UsageError)
    await expect(ack(id, { note: 'x'.repeat(501) })).rejects.toThrow(UsageError)
  })
})

describe('the list', () => {
  test('the throughput is that of the lifecycles that are read, and the text says so', async () => {
    const { system, db } = await world({ errors: [groupOf({ documents: { n: 3 } })] })
    const { _id: _, ...other } = censusOf('other', new Date())
    await db
      .collection<Document & { _id: string }>('phaselock.census')
      .replaceOne({ _id: 'other' }, other, { upsert: true })
    const both = { ...system, models: [thing.model, thingOf({ name: 'other', collection: 'Other' }).model] }
    expect((await causes(system)).quiet).toMatchObject({ perMinute: 0, isPartly: false })
    const { quiet, now } = await causes(both)
    expect(quiet).toMatchObject({ perMinute: null, isPartly: true })
    expect(quietText({ ...quiet, perMinute: 7 }, now)).toMatch(/^at least 7 steps per minute; /)
  })

  test('reads no document of a lifecycle, and says the same each time', async () => {
    const { bulk } = await world({ parks: [groupOf()], errors: [groupOf({ documents: { n: 3 } })] })
    await bulk.things.insertOne({ _id: 'a', phase: 'Creating' })
    const client = new MongoClient(database.uri, { monitorCommands: true })
    const sent: string[] = []
    client.on('commandStarted', ({ command }) => sent.push(JSON.stringify(command)))
    const system: System = { db: client.db(database.db.databaseName), models: [thing.model] }
    const first = await causes(system)
    const second = await causes(system)
    expect(second.rows.map(({ id, text }) => [id, text])).toEqual(first.rows.map(({ id, text }) => [id, text]))
    await client.close()
    expect(sent.filter((one) => one.includes('"Thing"'))).toEqual([])
    expect(sent.length).toBeLessThanOrEqual(2 * 13)
  })

  test('of 10,000 distinct causes it shows 50, and says how many more', async () => {
    const parks = Array.from({ length: 50 }, (_, i) => groupOf({ cause: i.toString(16).padStart(12, '0') }))
    const { system } = await world({ parks, moreParks: 9_950 })
    const { rows, more, needsYou } = await causes(system)
    expect(rows).toHaveLength(50)
    expect(more).toEqual({ n: 9_951, about: true })
    expect(needsYou).toBe(51)
    const last = parks.at(-1)!.cause
    expect((await causeNamed(system, last)).row.cause).toBe(last)
  })

  test('without a census it says so, instead of that all is well', async () => {
    const { system, db } = await world()
    await db.collection('phaselock.census').deleteMany()
    expect(await causes(system)).toMatchObject({
      noCensus: [{ lifecycle: 'thing', why: expect.stringContaining('no replica has taken one yet') }],
      asOf: null,
      isOld: false,
    })
  })

  test('an old census is said to be old', async () => {
    const { system } = await world({ at: new Date(Date.now() - 180_000) })
    expect(await causes(system)).toMatchObject({ isOld: true, noCensus: [] })
  })

  test('an operation on a cause is shown when the cause comes back, with what became of it', async () => {
    const { system, bulk } = await world({ parks: [groupOf({ firstSeen: new Date(Date.now() + HOUR) })] })
    const { id } = await rowOf(system)
    await bulk.things.insertOne({ _id: 'a', phase: 'Creating' })
    const { _id } = await bulk.run('wake', { all: true }, { cause: id })
    expect((await rowOf(system)).helped).toEqual([
      expect.objectContaining({ operation: _id, action: 'wake', by: 'ana', ended: 'Done', cause: 'back' }),
    ])
    await expect(bulk.begin('wake', { all: true }, { cause: 'packing' })).rejects.toThrow(
      'cause: expected the id of a cause, 12 hex digits',
    )
  })
})
