import { runInNewContext } from 'node:vm'
import { describe, expect, test } from '@jest/globals'
import {
  Binary,
  BSONRegExp,
  Code,
  DBRef,
  Decimal128,
  type Document,
  Double,
  Int32,
  Long,
  MaxKey,
  MinKey,
  ObjectId,
  Timestamp,
  UUID,
} from 'mongodb'
import { InvalidDocument } from '../../src/index.js'
import { Holder } from '../../src/phases/step/holder.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, thing, thingOf, things, thingWith } from '../support/thing.js'

class Money {
  constructor(readonly amount: number) {}
}
class Priced {
  constructor(readonly amount: unknown) {}
  toBSON() {
    return { amount: this.amount }
  }
}
const otherRealm = (code: string) => runInNewContext(code) as unknown

/** What BSON would store as something else, or not at all, and what the error says of it. */
const REFUSED: [string, unknown, RegExp][] = [
  ['a Set', new Set([1]), /is a Set, which would be stored as something else; store a list: \[\.\.\.set\]/],
  ['a Map', new Map([['a', 1]]), /is a Map, .*; store an object: Object\.fromEntries\(map\)/],
  ['an Error', new RangeError('x'), /is a RangeError, .*; store its name and message/],
  ['an Error of another realm', otherRealm('new Error("x")'), /is an Error, .*; store its name and message/],
  ['a URL', new URL('http://example.org/'), /is a URL, .*; store its string: url\.href/],
  ['a promise', Promise.resolve(1), /is a Promise, .*; store what it resolves to: await it/],
  ['a big bigint', 2n ** 63n, /is a bigint that doesn't fit in 64 bits; store it as a string or a Decimal128/],
  ['a small bigint', -(2n ** 63n) - 1n, /is a bigint that doesn't fit in 64 bits/],
  ['an unsigned Long', Long.MAX_UNSIGNED_VALUE, /is an unsigned Long that doesn't fit in 64 bits/],
  [
    'an instance of a class',
    new Money(1),
    /is an instance of Money, .*; store a plain object \(\{ \.\.\.value \}\), or/,
  ],
  ['a class that stores a Set', new Priced(new Set()), /'box\.list\.1\.amount' is a Set/],
  ['an undefined in a list', [1, undefined], /'box\.list\.1\.1' is undefined, which would be stored as null/],
  ['a hole in a list', new Array(1), /'box\.list\.1\.0' is undefined, which would be stored as null/],
  [
    'a list of numbers in bytes',
    new Float64Array([1.5]),
    /is a Float64Array, .*; store its bytes as a Buffer, or a list/,
  ],
  ['an ArrayBuffer', new ArrayBuffer(2), /is an ArrayBuffer, .*; store its bytes as a Buffer/],
  ['a boxed text', new String('x'), /is a String, .*; store its value: value\.valueOf\(\)/],
  ['a regular expression with g', /x/g, /is a regular expression with the flags 'g', of which only i and m are stored/],
  ['a regular expression with s', /x/is, /with the flags 'is', of which only i and m are stored/],
  ['an invalid date', new Date(Number.NaN), /is an invalid date, which would be stored as 1970-01-01/],
  ['a function', () => 1, /is a function, which can't be stored/],
  ['a symbol', Symbol('x'), /is a symbol, which can't be stored/],
]

/** What comes back as it was stored, or as BSON's own class of the same content. */
const STORED: [string, unknown, unknown?][] = [
  ['a text', 'x'],
  ['numbers', [1, -1.5, 2 ** 53, Number.MAX_VALUE]],
  ['null, true, false', [null, true, false]],
  ['an object without a prototype', Object.assign(Object.create(null), { a: 1 }), { a: 1 }],
  ['an object of another realm', otherRealm('({ a: [1] })'), { a: [1] }],
  ['a date', new Date(5)],
  ['a bigint', 2n ** 63n - 1n, Long.MAX_VALUE],
  ['a Long', Long.MIN_VALUE],
  ['a small unsigned Long', Long.fromNumber(5, true), 5],
  ['a Buffer', Buffer.from('x'), new Binary(Buffer.from('x'))],
  ['a Uint8Array', new Uint8Array([1, 2]), new Binary(new Uint8Array([1, 2]))],
  ['a Binary', new Binary(Buffer.from('x'))],
  ['a UUID', new UUID('dc17be16-b39e-4659-b6a0-1a12c69c3da8')],
  ['an ObjectId', new ObjectId('6b028ab820d0781f152a2483')],
  ['a Decimal128', Decimal128.fromString('1.50')],
  ['a Timestamp', new Timestamp({ t: 1, i: 2 })],
  ['a MinKey and a MaxKey', [new MinKey(), new MaxKey()]],
  ['a Double and an Int32', [new Double(5), new Int32(5)], [5, 5]],
  ['code', new Code('x', { a: 1 })],
  ['a DBRef', new DBRef('c', new ObjectId('6b028ab820d0781f152a2483'))],
  ['a regular expression', /x/im],
  ['a BSONRegExp', new BSONRegExp('x', 'i'), /x/i],
  ['an instance with toBSON', new Priced(5), { amount: 5 }],
  ['undefined in an object', { a: undefined }, { a: null }],
]

describe('values that are stored', () => {
  const database = useDatabase()
  const read = async (id = 'a') => (await things(database.db).findOne({ _id: id })) as Document
  const boxed = (value: unknown) => ({ box: { list: [0, value] } })

  async function run(handler: (doc: any, step: any) => Promise<unknown>) {
    const backOff = { firstError: '10m', longestError: '10m' }
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replicaOf(database.db, thingWith(handler as never, thingOf({ backOff }))).runOnce()
    return read()
  }

  test.each(REFUSED)(
    '%s in a set: refused with its path, nothing is stored, an attempt',
    async (_name, value, says) => {
      const found = await run(async (_doc, step) => step.moveTo('Created', { set: { n: 1, ...boxed(value) } }))
      expect(found).toMatchObject({ phase: 'Creating', progress: { attempts: 1, error: { name: 'InvalidOutcome' } } })
      expect(found).not.toHaveProperty('n')
      expect(found).not.toHaveProperty('box')
      expect(found['progress'].error.message).toMatch(/^set: 'box\.list\.1/)
      expect(found['progress'].error.message).toMatch(says)
    },
  )

  test('the same in a checkpoint, each at its call; what is set after it is stored', async () => {
    const refused: string[] = []
    const found = await run(async (_doc, step) => {
      for (const [, value] of REFUSED) await step.checkpoint(boxed(value)).catch((e: Error) => refused.push(e.message))
      return step.moveTo('Created', { set: { n: 1 } })
    })
    expect(refused).toHaveLength(REFUSED.length)
    for (const [i, [, , says]] of REFUSED.entries()) expect(refused[i]).toMatch(says)
    expect(found).toMatchObject({ phase: 'Created', n: 1 })
    expect(found).not.toHaveProperty('box')
  })

  test.each(REFUSED)('an owner inserts %s: InvalidDocument, nothing is inserted', async (_name, value, says) => {
    const owner = thing.handle({ Creating: async (_d, s) => s.again(), Deleting: async (_d, s) => s.again() })
    const inserted = owner
      .attach(database.db)
      .owner()
      .insertMany([{ _id: 'good' }, { _id: 'a', ...boxed(value) } as never])
    await expect(inserted).rejects.toThrow(InvalidDocument)
    await expect(inserted).rejects.toThrow(says)
    expect(await things(database.db).countDocuments()).toBe(0)
  })

  test.each([
    ['a Set', new Set([1])],
    ['a Map', new Map([['n', 1]])],
    ['an instance of a class', new Money(1)],
  ])('a set that is %s itself: refused', async (_name, set) => {
    const found = await run(async (_doc, step) => step.moveTo('Created', { set }))
    expect(found['progress'].error.message).toMatch(/^set: expected an object with fields, got an? .*; store /)
  })

  test('a holder stores and inserts no such value either', async () => {
    await things(database.db).insertOne({ _id: 'a', lockedBy: 'x~1#1.1' })
    const step = { fence: 1, signal: new AbortController().signal, leaseLeftMs: () => 1_000 }
    const holder = new Holder(database.db.collection('Thing'), { _id: 'a', lockedBy: 'x~1#1.1' }, step)
    await expect(holder.set(boxed(new Set()))).rejects.toThrow(/^set: 'box\.list\.1' is a Set/)
    const inserted = holder.insert({ _id: 'child', ...boxed(new Set()) }, { collection: 'Child' })
    await expect(inserted).rejects.toThrow(/^insert: 'box\.list\.1' is a Set/)
    expect(await database.db.collection('Child').countDocuments()).toBe(0)
    expect(await read()).toEqual({ _id: 'a', lockedBy: 'x~1#1.1' })
  })

  test('what BSON has a type for comes back as it was', async () => {
    const set = Object.fromEntries(STORED.map(([name, value]) => [name.replaceAll('.', ' '), value]))
    const found = await run(async (_doc, step) => step.moveTo('Created', { set }))
    expect(found['progress'].error).toBeUndefined()
    expect(found['phase']).toBe('Created')
    for (const [name, value, back = value] of STORED) expect([name, found[name]]).toEqual([name, back])
  })
})
