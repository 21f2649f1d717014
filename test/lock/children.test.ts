import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { childDocuments, childIndex, countChildren } from '../../src/lock/look/children.js'
import { useDatabase } from '../support/database.js'

describe('children', () => {
  const database = useDatabase()

  test.each([
    ['begins again', 'Packed', 'Packing'],
    ['ends', 'Packing', 'Packed'],
  ])('one that %s while they are counted is not taken for removed', async (_what, from, to) => {
    const collection = database.db.collection<Document & { _id: string }>('Parcel')
    await collection.createIndex(childIndex('progress'))
    const parent = { lifecycle: 'order', id: 'o' }
    const children = ['a', 'b', 'c'].map((_id) => ({ _id, phase: from, progress: { parent } }))
    await collection.insertMany(children)
    let reads = 0
    const watched = new Proxy(collection, {
      get(target, name) {
        if (name !== 'aggregate') return Reflect.get(target, name)
        return (pipeline: Document[], options: object) => ({
          async toArray() {
            reads += 1
            const found = await target.aggregate(pipeline, options).toArray()
            if (reads === 1) await target.updateOne({ _id: 'b' }, { $set: { phase: to } })
            return found
          },
        })
      },
    })
    const count = async (total?: number) => {
      const found = await countChildren(
        { collection: watched as never, progress: 'progress', parent },
        ['Packed'],
        total,
      )
      return found.reduce((sum, one) => sum + one.count, 0)
    }
    expect(await count(3)).toBeGreaterThanOrEqual(3)
    await collection.deleteOne({ _id: 'a' })
    expect(await count(3)).toBe(2)
  })

  test('that move between two batches of a read are all in it, once', async () => {
    const collection = database.db.collection<Document & { _id: string }>('Parcel')
    await collection.createIndex(childIndex('progress'))
    const parent = { lifecycle: 'order', id: 'o' }
    await collection.insertMany(
      ['Broken', 'Broken', 'Packing', 'Shipping'].map((phase, i) => ({ _id: `p${i}`, phase, progress: { parent } })),
    )
    const watched = new Proxy(collection, {
      get(target, name) {
        if (name !== 'find') return Reflect.get(target, name)
        return (filter: object, options: object) => ({
          async toArray() {
            const found: Document[] = []
            for await (const one of target.find(filter, { ...options, batchSize: 2 })) {
              found.push(one)
              if (found.length === 2) {
                await target.updateOne({ _id: 'p0' }, { $set: { phase: 'Sent' } })
                await target.updateOne({ _id: 'p3' }, { $set: { phase: 'Arrived' } })
              }
            }
            return found
          },
        })
      },
    })
    const of = { collection: watched as never, progress: 'progress', parent }
    const read = await childDocuments(of, 1_000, 4)
    expect(read.map(({ _id, phase }) => `${_id} ${phase}`).sort()).toEqual([
      'p0 Sent',
      'p1 Broken',
      'p2 Packing',
      'p3 Arrived',
    ])
  })
})
