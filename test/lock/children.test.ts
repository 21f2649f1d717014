import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { childIndex, countChildren } from '../../src/lock/look/children.js'
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
})
