import { describe, expect, test } from '@jest/globals'
import { type Collection, type Document, MongoServerError } from 'mongodb'
import { isDefiniteRefusal } from '../../src/lock/documents/write.js'
import type { EndKind } from '../../src/lock/index.js'
import { useDatabase } from '../support/database.js'
import { claimed, endOf, lockedCollection, moveTo, PHASE, put, wait, writer } from './fixture.js'

const nested = (levels: number): unknown => (levels === 0 ? 1 : { a: nested(levels - 1) })
const circular: Document = {}
circular['self'] = circular

interface Refusal {
  readonly code: number | string | undefined
  readonly set?: Document
  readonly end?: EndKind
  /** What there is before. */
  readonly given?: (collection: Collection) => Promise<unknown>
  /** What its owner does while it is held. */
  readonly owner?: Document
}

const REFUSALS: Record<string, Refusal> = {
  'a type that an expression of ours can’t take': {
    code: 40400,
    end: moveTo('Next'),
    owner: { $set: { progress: 'mine' } },
  },
  'deeper than a document may be': { code: 15, set: { deep: nested(180) } },
  'larger than a document may be': { code: 10334, set: { more: 'x'.repeat(16_777_000) } },
  'a unique index': {
    code: 11000,
    set: { u: 1 },
    given: async (one) => {
      await one.createIndex({ u: 1 }, { unique: true, sparse: true })
      await one.insertOne({ _id: 'other' as never, u: 1 })
    },
  },
  'an index over two arrays': {
    code: 171,
    set: { x: [1], y: [2] },
    given: (one) => one.createIndex({ x: 1, y: 1 }),
  },
  'a hashed index over an array': { code: 16766, set: { h: [1, 2] }, given: (one) => one.createIndex({ h: 'hashed' }) },
  'a place that is none': { code: 510, set: { g: 'nowhere' }, given: (one) => one.createIndex({ g: '2dsphere' }) },
  'a place beyond the index': { code: 13027, set: { g: [999, 1] }, given: (one) => one.createIndex({ g: '2d' }) },
  'a text in an unknown language': {
    code: 17262,
    set: { t: 'x', language: 'klingon' },
    given: (one) => one.createIndex({ t: 'text' }),
  },
  'larger than a command may be': { code: 'ERR_OUT_OF_RANGE', set: { more: 'x'.repeat(20_000_000) } },
  'what BSON can’t hold': { code: undefined, set: { circular } },
}

describe('on a real server', () => {
  const database = useDatabase()

  test.each(Object.entries(REFUSALS))('refused for its own sake: %s', async (_name, refusal) => {
    const collection = await lockedCollection(database.db)
    await refusal.given?.(collection)
    await put(collection, { _id: 'a', phase: PHASE })
    const { lease } = await claimed(collection)
    if (refusal.owner) await collection.updateOne({ _id: 'a' as never }, refusal.owner)
    const end = endOf(lease, refusal.end ?? wait(), refusal.set ? { set: refusal.set } : {})
    const verdict = (await writer(collection).write([end])).get(end)
    expect(verdict).toMatchObject({ kind: 'rejected' })
    expect((verdict as unknown as { error: { code: unknown } }).error.code).toBe(refusal.code)
  })

  test.each<[string, number, (collection: Collection) => Promise<unknown>]>([
    ['a missing index', 2, (one) => one.updateMany({}, { $set: { n: 1 } }, { hint: 'none' })],
    ['an expression that this server doesn’t know', 168, (one) => one.updateMany({}, [{ $set: { n: { $new: 1 } } }])],
    ['a stage that it doesn’t know', 40324, (one) => one.updateMany({}, [{ $new: { n: 1 } }])],
  ])('no fault of a document: %s', async (_name, code, write) => {
    const collection = await lockedCollection(database.db)
    await put(collection, { _id: 'a', phase: PHASE })
    const error = await write(collection).catch((reason: unknown) => reason)
    expect(error).toMatchObject({ code })
    expect(isDefiniteRefusal(error)).toBe(false)
  })
})

test.each([1, 6, 7, 8, 9, 13, 50, 64, 91, 107, 112, 146, 189, 262, 290, 365, 371, 462, 10_107, 14_031, 987_654])(
  'code %d is no fault of a document',
  (code) => expect(isDefiniteRefusal(new MongoServerError({ message: 'no', code }))).toBe(false),
)

test('nor is an error that is neither the database’s nor one of building a command', () => {
  expect(isDefiniteRefusal(new Error('the credentials could not be fetched'))).toBe(false)
})
