import { describe, expect, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { again, blank, endOf, held, lockedCollection, moveTo, read, writer } from './fixture.js'

describe('ends of documents for which an insert has left something', () => {
  const database = useDatabase()
  const left = { 'progress.next': { set: { n: 2 }, at: new Date() } }

  test.each([
    ['again', again()],
    ['a move', moveTo('Working')],
  ] as const)('%s, beside others and lost ones: each verdict says what is so', async (_name, end) => {
    const collection = await lockedCollection(database.db)
    const leases = await held(collection, blank(9))
    await collection.updateMany({ _id: { $in: [1, 4] as never[] } }, { $set: left })
    await collection.updateMany({ _id: { $in: [2, 5] as never[] } }, { $set: { lockedBy: 'other#1.1' } })
    await collection.updateOne({ _id: 5 as never }, { $set: left })
    await collection.deleteOne({ _id: 7 as never })
    const ends = leases.map((lease) => endOf(lease, end))
    const verdicts = await writer(collection).write(ends)
    const found = ends.map((one) => verdicts.get(one))
    const recorded = { kind: 'recorded' }
    const taken = { kind: 'recorded', isMarked: true }
    const lost = { kind: 'lost' }
    expect(found).toEqual([recorded, taken, lost, recorded, taken, lost, recorded, lost, recorded])
    for (const n of [1, 4]) {
      const document = await read(collection, n)
      expect(document).toMatchObject({ n: 2, lockedAt: new Date(0), progress: { claims: 0 } })
      expect([document['lockedBy'], document['progress'].next, leases[n]!.leftMs()]).toEqual([undefined, undefined, 0])
    }
    expect(await read(collection, 5)).toMatchObject({ lockedBy: 'other#1.1', progress: { next: { set: { n: 2 } } } })
    const goesOn = end.kind === 'again'
    expect([0, 3, 6, 8].map((n) => leases[n]!.leftMs() > 0)).toEqual(Array(4).fill(goesOn))
  })
})
