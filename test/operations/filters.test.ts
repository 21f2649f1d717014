import { describe, expect, test } from '@jest/globals'
import { DBRef, type Document, ObjectId } from 'mongodb'
import { beginOperation, previewOperation, UsageError } from '../../src/operations/index.js'
import { whyNoFilter } from '../../src/operations/system/filter.js'
import { useDatabase } from '../support/database.js'
import { BulkWorld, many, PARKED } from './bulk-world.js'

const parsed = (text: string) => JSON.parse(text) as Document
const nested = (levels: number): Document => (levels === 0 ? { n: 1 } : { $and: [nested(levels - 1)] })
/** What the server receives counts. */
class Hidden {
  toBSON(): Document {
    return { $where: js }
  }
}
const NUL = 'a\0b'
const js = 'function () { return true }'

describe('a filter that a person gives', () => {
  const database = useDatabase()

  const used: readonly [Document][] = [
    [{ n: { $gt: 1, $lte: 7 }, $or: [{ a: 'x' }, { 'b.c': { $in: [null, /^a/i, new Date(0)] } }] }],
    [{ tags: { $all: ['a'], $size: 2 }, items: { $elemMatch: { sku: 'x', n: { $not: { $mod: [2, 0] } } } } }],
    [{ at: { $exists: true, $type: 'date' }, name: { $regex: '^a', $options: 'i' }, flags: { $bitsAllSet: [1] } }],
    [{ owner: new DBRef('People', new ObjectId()), 'owner.$id': 7, 'a.$ref': 'People' }],
    [{ place: { $geoWithin: { $centerSphere: [[0, 0], 1] } } }],
    [{ $expr: { $gt: ['$done', { $multiply: ['$asked', 2] }] } }],
    [{ $expr: { $lt: ['$at', { $dateSubtract: { startDate: '$$NOW', unit: 'day', amount: 1 } }] } }],
    [{ constructor: 'Smith', toString: { $ne: 1 }, '': 1 }],
    [nested(8)],
  ]
  test('is used where all of its operators are allowed', async () => {
    const w = await BulkWorld.of(database.db)
    for (const [filter] of used) {
      expect(whyNoFilter(filter)).toBeUndefined()
      const request = { action: 'wake', selection: { lifecycle: 'thing', filter }, by: 'ana' } as const
      expect(await previewOperation(w.system, request)).toMatchObject({ count: 0 })
    }
  })

  const expression = (inner: Document) => ({ $or: [{ $expr: { $eq: [1, inner] } }] })
  const refused: readonly [string, unknown][] = [
    ["'$where' isn't among the operators that are allowed", { $where: js }],
    ["'$where' isn't", { $and: [{ a: 1 }, { $or: [{ $where: js }] }] }],
    ["'$where' isn't", { a: { $elemMatch: { $where: js } } }],
    ["'$where' isn't", { a: { $not: { $where: js } } }],
    ["'$where' isn't", { a: new Hidden() }],
    ["'$where' isn't", { $and: [new Hidden()] }],
    ["'$function' isn't", expression({ $function: { body: js, args: [], lang: 'js' } })],
    ["'$accumulator' isn't", expression({ $accumulator: { init: js } })],
    ["'$map' isn't", expression({ $map: { input: { $range: [0, 1_000_000_000] }, in: 1 } })],
    ["'$reduce' isn't", expression({ $cond: [{ $reduce: {} }, 1, 2] })],
    ["'$rand' isn't", expression({ $rand: {} })],
    ["'$regexMatch' isn't", expression({ $regexMatch: { input: '$a', regex: '(a+)+$' } })],
    ["'$text' isn't", { $text: { $search: 'x' } }],
    ["'$jsonSchema' isn't", { $jsonSchema: {} }],
    ["'$near' isn't", { place: { $near: [0, 0] } }],
    ["'$gte ' isn't among the operators that are allowed; did you mean '$gte'?", { n: { '$gte ': 1 } }],
    ["'a.$where' is no path of fields", { 'a.$where': 1 }],
    ["'__proto__' is a name that can't be kept", parsed('{"__proto__": {"n": 1}}')],
    ["'a.__proto__' is a name that can't be kept", parsed('{"a": {"__proto__": {"n": 1}}}')],
    ['NUL', { 'a\0b': 1 }],
    ['NUL', { a: [{ '\0': 1 }] }],
    ['must not contain null bytes', { a: new RegExp(NUL) }],
    ['nested more than 20 levels deep', nested(30)],
    ['more than 1000000', { n: { $in: Array.from({ length: 100_000 }, (_, i) => `id-${i}`) } }],
    ['is no path of fields', { ['x'.repeat(2_000)]: 1 }],
  ]
  test('is refused where it is not plain, deep or large, and nothing is changed', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(1, PARKED))
    for (const [problem, filter] of refused) {
      const request = { action: 'remove', selection: { lifecycle: 'thing', filter }, by: 'ana' } as never
      for (const ask of [previewOperation, beginOperation]) {
        const asked = ask(w.system, request)
        await expect(asked).rejects.toThrow(UsageError)
        await expect(asked).rejects.toThrow(problem)
      }
    }
    expect(await w.things.countDocuments()).toBe(1)
  })
})
