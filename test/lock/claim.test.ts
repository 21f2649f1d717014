import { describe, expect, test } from '@jest/globals'
import { type Document, Long, MaxKey, MinKey, ObjectId, Timestamp } from 'mongodb'
import { PARKED_AT, TASK_LOCK_INIT_TIME, termsOf } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import {
  ago,
  claimed,
  claimer,
  interrupted,
  LOCK_TIMEOUT_MS,
  lockedCollection,
  PHASE,
  put,
  read,
  serverNow,
} from './fixture.js'

const both = [['one', 1] as const, ['a batch', 3] as const]

describe('a claim', () => {
  const database = useDatabase()

  test('sets exactly lockedAt, lockedBy, fence and claims + 1, and fills createdAt, updatedAt, since, attempts', async () => {
    const collection = await lockedCollection(database.db)
    const before = await serverNow(collection)
    await put(collection, { _id: 'a', phase: PHASE, own: { deep: [1, { x: 2 }] } })
    const { document, lease } = await claimed(collection)
    expect(document).toEqual(await read(collection, 'a'))
    const { lockedAt, fence, createdAt, updatedAt, progress, ...rest } = document
    expect(rest).toEqual({ _id: 'a', phase: PHASE, own: { deep: [1, { x: 2 }] }, lockedBy: lease.token })
    expect(progress).toEqual({ since: lockedAt, claims: 1, attempts: 0 })
    expect([createdAt, updatedAt]).toEqual([lockedAt, lockedAt])
    expect(lockedAt.getTime()).toBeGreaterThanOrEqual(before.getTime())
    expect(lease.fence).toBe(fence)
  })

  test('keeps createdAt, updatedAt, since, endedBy, history and whatever else is in progress', async () => {
    const collection = await lockedCollection(database.db)
    const kept = { since: new Date(5), endedBy: 'x#1.1', history: [{ n: 1 }], step: 's2', own: 3, attempts: 4 }
    const dates = { createdAt: new Date(1), updatedAt: new Date(2) }
    await put(collection, { _id: 'a', phase: PHASE, ...dates, progress: { ...kept, claims: 2 } })
    const { document } = await claimed(collection)
    expect(document).toMatchObject(dates)
    expect(document['progress']).toEqual({ ...kept, claims: 3 })
  })

  const dueValues: [string, unknown][] = [
    ['null', null],
    ['epoch', TASK_LOCK_INIT_TIME],
    ['before epoch (a priority)', new Date(-5)],
    ['MinKey', new MinKey()],
    ['a number', 12],
    ['a string', '2020-01-01'],
    ['an object', { a: 1 }],
    ['an array of old dates', [new Date(0), new Date(1)]],
    ['an empty array', []],
    ['an array of epoch and an old date', [new Date(0), new Date(100_000)]],
    ['an ObjectId', new ObjectId()],
    ['true', true],
    ['expired by 1 ms', ago(LOCK_TIMEOUT_MS + 1)],
  ]
  for (const [how, limit] of both) {
    test.each(dueValues)(`of ${how}: lockedAt %s is due, and mended`, async (_name, lockedAt) => {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE, lockedAt })
      const { claims } = await claimer(collection, { random: () => 0.5 })
      const result = await claims.claimBatch(PHASE, limit)
      expect(result.claimed).toHaveLength(1)
      expect((await read(collection, 'a'))['lockedAt']).toBeInstanceOf(Date)
    })
  }

  const notDue: [string, Document][] = [
    ['held now', { lockedAt: '$$NOW', lockedBy: 'x#1.1' }],
    ['held for a while', { lockedAt: ago(LOCK_TIMEOUT_MS - 20_000), lockedBy: 'x#1.1' }],
    ['asleep', { lockedAt: ago(LOCK_TIMEOUT_MS - 20_000) }],
    ['asleep for longer than lockTimeout', { lockedAt: ago(-600_000) }],
    ['parked', { lockedAt: PARKED_AT }],
    ['a Timestamp', { lockedAt: new Timestamp({ t: 1, i: 1 }) }],
    ['MaxKey', { lockedAt: new MaxKey() }],
  ]
  test.each(notDue)('does not take and does not change a document that is not due: %s', async (_name, fields) => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE, ...fields })
    const before = await read(collection, 'a')
    const { claims } = await claimer(collection)
    expect(await claims.claimBatch(PHASE, 1)).toMatchObject({ claimed: [], candidates: 0 })
    expect(await claims.claimBatch(PHASE, 10)).toMatchObject({ claimed: [], candidates: 0 })
    expect(await read(collection, 'a')).toEqual(before)
  })

  const odd: [string, Document][] = [
    ['nulls', { lockedAt: null, updatedAt: null, fence: null, createdAt: null, progress: null, lockedBy: null }],
    ['strings', { lockedAt: 'x', updatedAt: 'x', fence: 'x', createdAt: 'x', lockedBy: 7 }],
    ['arrays', { lockedAt: TASK_LOCK_INIT_TIME, updatedAt: [1], fence: [1], createdAt: [1], lockedBy: ['x'] }],
    ['odd counts', { progress: { claims: 'x', attempts: [1], since: 'x' } }],
    ['NaN and negative counts', { progress: { claims: Number.NaN, attempts: -3, since: null } }],
  ]
  for (const [how, limit] of both) {
    test.each(odd)(`of ${how} mends %s`, async (_name, fields) => {
      const collection = await lockedCollection(database.db)
      await put(collection, { _id: 'a', phase: PHASE, ...fields }, { _id: 'b', phase: PHASE, ...fields })
      const { claims } = await claimer(collection)
      const result = await claims.claimBatch(PHASE, limit)
      const { document, lease } = result.claimed[0]!
      expect(document).toMatchObject({ lockedBy: lease.token, fence: lease.fence })
      expect(document['progress']).toMatchObject({ claims: 1, attempts: 0, since: document['lockedAt'] })
      for (const field of ['updatedAt', 'createdAt'] as const) {
        const was = fields[field]
        expect(document[field]).toEqual(was ?? document['lockedAt'])
      }
    })
  }

  const broken: [string, Document][] = [
    ['a string in progress', { progress: 'mine' }],
    ['a number in progress', { progress: 7 }],
    ['an array in progress', { progress: [{ claims: 1 }] }],
    ['a date in progress', { progress: new Date(7) }],
    ['an array in phase', { phase: [PHASE, 'Other'] }],
  ]
  for (const [how, limit] of both) {
    test.each(broken)(
      `of ${how} only sets lockedAt 9999-12-31 where there is %s, and reports it`,
      async (_n, fields) => {
        const collection = await lockedCollection(database.db)
        const theirs = { _id: 'a', phase: PHASE, own: 1, ...fields }
        await put(collection, theirs)
        if (limit > 1) await put(collection, { _id: 'b', phase: PHASE }, { _id: 'c', phase: PHASE })
        const { claims } = await claimer(collection)
        const result = await claims.claimBatch(PHASE, limit)
        expect(await read(collection, 'a')).toEqual({ ...theirs, lockedAt: PARKED_AT })
        expect(result).toMatchObject({ broken: ['a'], lost: 0 })
        expect(result.claimed).toHaveLength(limit - 1)
        expect(await claims.claimBatch(PHASE, 5)).toMatchObject({ candidates: 0 })
      },
    )
  }

  test("puts what it keeps where the lifecycle says, and leaves an owner's progress alone", async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE, progress: 'mine' })
    const terms = termsOf(LOCK_TIMEOUT_MS, { progress: '_phaselock' })
    const { document } = await claimed(collection, await claimer(collection, { terms }))
    expect(document).toMatchObject({ progress: 'mine', _phaselock: { claims: 1 } })
  })

  test('never lowers a fence: what looked new and has been claimed since the look is left to the next claim', async () => {
    const collection = await lockedCollection(database.db)
    // So many that new ones are claimed by the cheaper update, which sets the first fence.
    await collection.insertMany(Array.from({ length: 120 }, (_, i) => ({ _id: i as never, phase: PHASE })))
    const fence = Long.fromNumber(9e15)
    // Claimed, done, and its `progress` removed by its owner.
    const meanwhile = () => collection.updateOne({ _id: 5 as never }, { $set: { fence } })
    const through = interrupted(collection, 'updateMany', { before: meanwhile })
    const { claims } = await claimer(through)
    const first = await claims.claimBatch(PHASE, 200)
    expect(first).toMatchObject({ candidates: 120, lost: 1 })
    expect(await read(collection, 5)).toEqual({ _id: 5, phase: PHASE, fence: 9e15 })
    const next = await claims.claimBatch(PHASE, 200)
    expect(next.claimed.map(({ lease }) => [lease.id, lease.fence])).toEqual([[5, 9e15 + 1]])
  })

  test('takes the free document that waited longest in updatedAt', async () => {
    const collection = await lockedCollection(database.db)
    const at = (lockedAt: number, updatedAt: number) => ({
      lockedAt: new Date(lockedAt),
      updatedAt: new Date(updatedAt),
    })
    await put(
      collection,
      { _id: 'c', phase: PHASE, ...at(0, 3) },
      { _id: 'b', phase: PHASE, ...at(0, 2) },
      { _id: 'a', phase: PHASE, ...at(0, 1) },
      { _id: 'z', phase: 'Other', ...at(0, 0) },
    )
    const replica = await claimer(collection)
    const order: unknown[] = []
    for (let i = 0; i < 3; i += 1) order.push((await claimed(collection, replica)).lease.id)
    expect(order).toEqual(['a', 'b', 'c'])
  })

  test("without knowledge of the server's time it claims nothing by a look of its own, and what is named all the same", async () => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE }, { _id: 'b', phase: PHASE })
    const replica = await claimer(collection)
    const { Claimant, ServerClock } = await import('../../src/lock/index.js')
    const { ClaimsByName, TERMS } = await import('./fixture.js')
    const blind = new ClaimsByName({
      collection,
      terms: () => TERMS,
      claimant: new Claimant(replica.identity),
      clock: replica.clock,
      serverClock: new ServerClock(replica.clock),
    })
    expect(await blind.claimBatch(PHASE, 10)).toMatchObject({ claimed: [], candidates: 0 })
    expect((await blind.claimNamed(PHASE, ['a'])).claimed).toHaveLength(1)
  })
})
