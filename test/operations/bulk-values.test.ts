import { describe, expect, test } from '@jest/globals'
import { Binary, BSON, Double, Long, ObjectId } from 'mongodb'
import { beginOperation, fromExtendedJson, listOperations, previewOperation } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { ASLEEP, BulkWorld, many, PARKED } from './bulk-world.js'

/** A value of an app's own. */
class Printer {
  private readonly name = undefined
  constructor(private readonly bytes: Buffer) {}
  toBSON() {
    return this.name ?? this.bytes
  }
}

describe('what an operation keeps of its request', () => {
  const database = useDatabase()

  test('is a filter that means just what was counted, whatever the types of its values are', async () => {
    const w = await BulkWorld.of(database.db)
    const customer = new ObjectId()
    const [at, bytes, n] = [new Date('2026-01-01'), Buffer.from('p7'), Long.fromString('9007199254740993')]
    const values = { customer, at, bytes, n, nested: { d: 1.5, r: 'Pack' }, count: 2 ** 40 }
    const named = [...many(1, { ...ASLEEP, r: 'tmp-1' }, 'r'), ...many(1, { ...ASLEEP, r: 'TMP-keep' }, 's')]
    await w.things.insertMany([...many(3, { ...ASLEEP, ...values }), ...many(2, ASLEEP, 'e'), ...named])
    const meant = new Printer(bytes)
    const filters: [object, number][] = [
      [{ customer, at: { $lte: at }, bytes, n }, 3],
      [{ bytes: new Uint8Array(bytes), count: 2 ** 40, 'nested.r': /^pack/i }, 3],
      [{ bytes: { $in: [meant] } }, 3],
      [{ bytes: { $ne: bytes } }, 4],
      [{ bytes: { $nin: [meant] } }, 4],
      [{ n: { $gt: BigInt(2 ** 53) }, nested: { d: new Double(1.5), r: 'Pack' } }, 3],
      [{ n: null }, 4],
      [{ r: { $regex: '^tmp', $options: 'i', $ne: 'TMP-keep' } }, 1],
      [{ r: { $regex: /^tmp/i, $nin: ['TMP-keep'] } }, 1],
      [{ r: { $regex: '^tmp' } }, 1],
      [{ r: { $not: { $regex: '^tmp', $options: 'i' } } }, 5],
    ]
    for (const [filter, count] of filters) {
      const request = { action: 'wake', selection: { lifecycle: 'thing', filter }, by: 'ana' } as const
      expect({ filter, count: (await previewOperation(w.system, request)).count }).toEqual({ filter, count })
      expect({ filter, count: (await w.run('wake', { filter })).counts.seen }).toEqual({ filter, count })
    }
  })

  test('is read from a command line with all that stands beside a regular expression', () => {
    expect(
      BSON.EJSON.stringify(fromExtendedJson('{"r": {"$regex": "^a", "$options": "i", "$ne": "ab"}, "n": 5}')),
    ).toBe('{"r":{"$ne":"ab","$regex":{"$regularExpression":{"pattern":"^a","options":"i"}}},"n":5}')
  })

  test('has no undefined, which to a client that ignores it means any document', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(3, ASLEEP))
    const db = database.client.db(database.db.databaseName, { ignoreUndefined: true })
    for (const filter of [
      { n: undefined },
      { $or: [{ n: 1 }, { n: { $ne: undefined } }] },
      { n: { $in: [undefined] } },
    ]) {
      const request = { action: 'remove', selection: { lifecycle: 'thing', filter }, by: 'ana' } as const
      await expect(beginOperation({ ...w.system, db }, request)).rejects.toThrow(
        /^expected a filter that MongoDB can use, got one in which '\S+' is undefined/,
      )
    }
    await expect(w.begin('redo', { all: true }, { options: { set: { a: [{ printer: undefined }] } } })).rejects.toThrow(
      "expected fields that can be stored: 'a.0.printer' is undefined",
    )
    expect(await listOperations(w.system)).toMatchObject({ operations: [] })
  })

  test('are fields as they were given', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(1, PARKED))
    const set = { bytes: Buffer.from('p7'), n: Long.fromString('9007199254740993'), d: new Double(1), at: new Date(5) }
    await w.run('redo', { parked: true }, { options: { set } })
    const exactly = { promoteValues: false, promoteBuffers: false }
    expect(await w.things.findOne({}, exactly)).toMatchObject({ ...set, bytes: new Binary(set.bytes) })
  })

  test('comes first in the list, before anybody works on it', async () => {
    const w = await BulkWorld.of(database.db)
    await w.things.insertMany(many(1, ASLEEP))
    const ended = await w.run('wake', { all: true })
    const begun = await w.begin('wake', { all: true })
    const { operations } = await listOperations(w.system)
    expect(operations.map(({ _id }) => _id)).toEqual([begun._id, ended._id])
    expect(operations[0]!.createdAt!.getTime()).toBeGreaterThan(ended.createdAt!.getTime())
  })
})
