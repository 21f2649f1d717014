import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Collection, MongoClient } from 'mongodb'
import { protocolCollection } from '../../src/database/index.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { again, blank, clientAt, endOf, held, lockedCollection, moveTo, read, wait, writer } from './fixture.js'

describe('ends of documents for which an insert has left something', () => {
  const database = useDatabase()
  const left = { 'progress.next': { set: { n: 2 }, at: new Date() } }
  let proxy: TcpProxy
  let client: MongoClient
  let collection: Collection
  let through: Collection

  beforeEach(async () => {
    collection = await lockedCollection(database.db)
    proxy = await TcpProxy.start(database.uri)
    client = await clientAt(proxy.uri, { retryWrites: false, retryReads: false })
    through = protocolCollection(client.db(database.db.databaseName), collection.collectionName)
  })
  afterEach(async () => {
    await client.close()
    await proxy.stop()
  })

  const recorded = { kind: 'recorded' }
  const taken = { kind: 'recorded', appliesPendingInsert: true }
  const lost = { kind: 'lost' }

  test.each([
    ['again', again()],
    ['a move', moveTo('Working')],
  ] as const)('%s, beside others and lost ones: each verdict says what is so', async (_name, end) => {
    const leases = await held(collection, blank(9))
    await collection.updateMany({ _id: { $in: [1, 4] as never[] } }, { $set: left })
    await collection.updateMany({ _id: { $in: [2, 5] as never[] } }, { $set: { lockedBy: 'other#1.1' } })
    await collection.updateOne({ _id: 5 as never }, { $set: left })
    await collection.deleteOne({ _id: 7 as never })
    const ends = leases.map((lease) => endOf(lease, end))
    const verdicts = await writer(collection).write(ends)
    const found = ends.map((one) => verdicts.get(one))
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

  test.each([
    ['again', again()],
    ['a wait', wait()],
    ['a move', moveTo('Working')],
  ] as const)(
    '%s, each write executed without an answer, or not at all: recorded once, with what was left',
    async (_name, end) => {
      for (const lose of [() => proxy.cutAfter('update', 2), () => proxy.cutBefore('update')]) {
        await collection.deleteMany()
        const [lease] = await held(collection, blank(1))
        await collection.updateOne({}, { $set: left })
        void lose()
        const one = endOf(lease!, end, { set: { n: 1, mine: 1 } })
        expect((await writer(through).write([one])).get(one)).toEqual(taken)
        const document = await read(collection, lease!.id)
        expect(document).toMatchObject({ n: 2, mine: 1, lockedAt: new Date(0) })
        expect([document['lockedBy'], document['progress'].next]).toEqual([undefined, undefined])
        expect(document['progress'].history).toHaveLength(1)
      }
    },
  )

  test('left while the write that goes on is without its answer: it has gone on, and the next end takes it along', async () => {
    const [lease] = await held(collection, blank(1))
    void proxy.cutAfter('update').then(() => undefined)
    const one = endOf(lease!, again())
    const writing = writer(through).write([one])
    expect((await writing).get(one)).toEqual(recorded)
    await collection.updateOne({}, { $set: left })
    const next = endOf(lease!, moveTo('Working'))
    expect((await writer(through).write([next])).get(next)).toEqual(taken)
    expect(await read(collection, lease!.id)).toMatchObject({ n: 2 })
  })
})
