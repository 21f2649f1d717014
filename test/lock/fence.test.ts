import { describe, expect, test } from '@jest/globals'
import { Decimal128, Double, Int32, Long, MaxKey, MinKey, ObjectId, Timestamp } from 'mongodb'
import { claimFence, stepFence } from '../../src/lock/lease/lease.js'
import { useDatabase } from '../support/database.js'
import { again, ago, claimed, claimer, endOf, lockedCollection, PHASE, put, read, writer } from './fixture.js'

const MISSING = Symbol('missing')

describe('the fence', () => {
  const database = useDatabase()

  async function fenceAfter(old: unknown, update = claimFence): Promise<{ fence: unknown; nowMs: number }> {
    const collection = database.db.collection('Fence')
    await collection.insertOne({ _id: 'a' as never, ...(old === MISSING ? {} : { fence: old }) })
    await collection.updateOne({ _id: 'a' as never }, [{ $set: { fence: update, now: '$$NOW' } }])
    const raw = (await collection.findOne({ _id: 'a' as never }, { promoteValues: false })) as Record<string, unknown>
    return { fence: raw['fence'], nowMs: (raw['now'] as Date).getTime() }
  }

  const foreign: [string, unknown][] = [
    ['missing', MISSING],
    ['null', null],
    ['0', 0],
    ['a string', 'x'],
    ["'12'", '12'],
    ['an array', [7]],
    ['an object', { a: 1 }],
    ['true', true],
    ['NaN', Number.NaN],
    ['Infinity', Number.POSITIVE_INFINITY],
    ['-Infinity', Number.NEGATIVE_INFINITY],
    ['-5', -5],
    ['Long max', Long.MAX_VALUE],
    ['Long min', Long.MIN_VALUE],
    ['1e300', 1e300],
    ['2^53 - 1', Number.MAX_SAFE_INTEGER],
    ['2^53', 2 ** 53],
    ['a Decimal128 beyond', Decimal128.fromString('1.8e18')],
    ['a Decimal128 NaN', Decimal128.fromString('NaN')],
    ['a Date', new Date()],
    ['a Timestamp', new Timestamp({ t: 1, i: 1 })],
    ['a regular expression', /x/],
    ['MinKey', new MinKey()],
    ['MaxKey', new MaxKey()],
    ['an ObjectId', new ObjectId()],
    ['binary', Buffer.from('x')],
    ['3.7', new Double(3.7)],
    ['an Int32', new Int32(12)],
  ]
  test.each(foreign)('%s: starts anew from the server clock, as a safe long', async (_name, old) => {
    for (const update of [claimFence]) {
      const { fence, nowMs } = await fenceAfter(old, update)
      expect(fence).toBeInstanceOf(Long)
      expect(Number(fence)).toBe(nowMs * 1000)
      expect(Number.isSafeInteger(Number(fence))).toBe(true)
    }
  })

  const ahead: [string, unknown, number][] = [
    ['a double', 1_999_999_999_999_999, 2_000_000_000_000_000],
    ['a Long', Long.fromNumber(1_999_999_999_999_999), 2_000_000_000_000_000],
    ['a Decimal128', Decimal128.fromString('1900000000000000'), 1_900_000_000_000_001],
  ]
  test.each(ahead)(
    '%s ahead of the clock grows by one, also when the clock has stepped back',
    async (_n, old, next) => {
      const { fence } = await fenceAfter(old)
      expect(fence).toBeInstanceOf(Long)
      expect(Number(fence)).toBe(next)
    },
  )

  test('of the next step is the old one + 1, so that the holder knows it without reading', async () => {
    const { fence } = await fenceAfter(5, stepFence)
    expect(Number(fence)).toBe(6)
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE })
    const { lease } = await claimed(collection)
    for (let step = 0; step < 5; step += 1) {
      await writer(collection).write([endOf(lease, again())])
      expect(lease.fence).toBe(Number((await read(collection, 'a'))['fence']))
    }
  })

  test.each(foreign)('of the next step survives a fence of another type: %s', async (_name, old) => {
    const { fence } = await fenceAfter(old, stepFence)
    expect(fence).toBeInstanceOf(Long)
    expect(Number.isSafeInteger(Number(fence))).toBe(true)
  })

  test('grows over replaceOne and over delete and insert, past the steps of a chain', async () => {
    const collection = await lockedCollection(database.db)
    const replica = await claimer(collection)
    const fences: number[] = []
    const turn = async () => {
      const { lease } = await claimed(collection, replica)
      fences.push(lease.fence)
      for (let step = 0; step < 20; step += 1) {
        await writer(collection).write([endOf(lease, again())])
        fences.push(lease.fence)
      }
    }
    await put(collection, { _id: 'a', phase: PHASE })
    await turn()
    await collection.replaceOne({ _id: 'a' as never }, { phase: PHASE })
    await turn()
    await collection.deleteOne({ _id: 'a' as never })
    await collection.insertOne({ _id: 'a' as never, phase: PHASE })
    await turn()
    await collection.updateOne({ _id: 'a' as never }, [{ $set: { lockedAt: ago(31_000) } }])
    await turn()
    expect(fences).toEqual([...fences].sort((a, b) => a - b))
    expect(new Set(fences).size).toBe(fences.length)
  })
})
