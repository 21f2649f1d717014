import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { type Collection, MongoClient } from 'mongodb'
import { isSharded, learnSharding } from '../../src/database/index.js'
import { type Lease, Renewals } from '../../src/lock/index.js'
import { systemClock } from '../../src/time/index.js'
import { blank, endOf, held, lockedCollection, moveTo, read, TERMS, verdictsOf } from '../lock/fixture.js'
import { eventually, useDatabase } from '../support/database.js'
import { chunksOf, move, shard } from './chunks.ts'
import { SHARDS, ShardedCluster } from './cluster.ts'
import { describeWithMongos } from './mongos.js'

/** Enough that each shard has some. */
const DOCUMENTS = 20
const HANGS = 'hangDuringBatchUpdate'

/*
 * A chunk that moves leaves copies of its documents behind, until a shard deletes them. A write of several documents goes to all shards,
 * and to those copies too.
 */
describeWithMongos('copies of documents that a chunk leaves behind when it moves', () => {
  let cluster: ShardedCluster
  let shards: MongoClient[]
  beforeAll(async () => {
    cluster = await ShardedCluster.start({ shardParameters: { enableTestCommands: 1 } })
    shards = await Promise.all(cluster.shardUris.map((uri) => new MongoClient(uri).connect()))
  }, 240_000)
  const database = useDatabase(() => cluster.uris[0])
  afterAll(async () => {
    await Promise.all((shards ?? []).map((client) => client.close()))
    await cluster?.close()
  }, 60_000)

  let things: Collection
  /** One on each shard, under one token. */
  let first: Lease
  let second: Lease
  beforeEach(async () => {
    await shard(database.db, 'Thing', { _id: 'hashed' })
    things = await lockedCollection(database.db)
    const leases = await held(things, blank(DOCUMENTS))
    const isOn = async (n: number, { id }: Lease) => (await on(n).countDocuments({ _id: id as never })) > 0
    const of = async (n: number) => {
      for (const lease of leases) if (await isOn(n, lease)) return lease
      throw new Error(`expected a document on ${SHARDS[n]}`)
    }
    ;[first, second] = [await of(0), await of(1)]
    expect(second.token).toBe(first.token)
    await learnSharding(database.db, ['Thing'])
  })
  const on = (n: number): Collection => shards[n]!.db(database.db.databaseName).collection('Thing')
  const idOf = ({ id }: Lease) => ({ _id: id as never })
  const ends = () => [endOf(first, moveTo('Next')), endOf(second, moveTo('Next'))]

  /** The collection as it would be written to by one who doesn't know that it is sharded. */
  const unaware = (): Collection => {
    const collection = new Proxy(things, {
      get: (target, name) => {
        const found = name === 'namespace' ? 'elsewhere' : Reflect.get(target, name)
        return typeof found === 'function' ? found.bind(target) : found
      },
    })
    expect([isSharded(things), isSharded(collection)]).toEqual([true, false])
    return collection
  }

  describe('of a document beside one whose lease has been taken', () => {
    beforeEach(async () => {
      await on(0).insertOne((await read(things, second.id)) as never)
      await things.updateOne(idOf(first), { $set: { lockedBy: 'other~abcdef#1.1' } })
      expect(await things.countDocuments({ _id: { $in: [first.id, second.id] as never[] } })).toBe(2)
    })

    test('an end', async () => {
      expect(await verdictsOf(things, ends())).toEqual(['lost', 'recorded'])
      expect(await read(things, second.id)).toMatchObject({ phase: 'Next' })
    })

    test('by one update of both: the copy is counted in its place, and what is lost passes for recorded', async () => {
      expect(await verdictsOf(unaware(), ends())).toEqual(['recorded', 'recorded'])
      expect(await read(things, first.id)).toMatchObject({ phase: 'Working', lockedBy: 'other~abcdef#1.1' })
    })

    const renewing = (collection: Collection) =>
      new Renewals(collection, () => TERMS, systemClock).renew([first, second])

    test('a renewal', async () => {
      expect(await renewing(things)).toEqual([first])
    })

    test('by one update of both: a lease that is lost passes for renewed', async () => {
      expect(await renewing(unaware())).toEqual([])
    })
  })

  describe('while an end is on its way', () => {
    const hang = (mode: 'alwaysOn' | 'off') =>
      shards[0]!
        .db('admin')
        .command({ configureFailPoint: HANGS, mode, data: { nss: things.namespace, namespace: things.namespace } })
    afterEach(() => hang('off'))

    /** The write stands still on the first shard, until all that this has is the other's. */
    async function moved<T>(write: () => Promise<T>): Promise<T> {
      await hang('alwaysOn')
      const written = write()
      await eventually(async () => {
        expect(await on(1).findOne(idOf(second))).toMatchObject({ phase: 'Next' })
        const hanging = { failpointMsg: HANGS }
        const [found] = await shards[0]!
          .db('admin')
          .aggregate([{ $currentOp: {} }, { $match: hanging }])
          .toArray()
        expect(found).toBeDefined()
      })
      for (const chunk of await chunksOf(database.db, 'Thing')) {
        if (chunk.shard === SHARDS[0]) await move(database.db, 'Thing', chunk, { waitForDelete: false })
      }
      expect(await on(1).countDocuments()).toBe(DOCUMENTS)
      await hang('off')
      return written
    }

    test('it is recorded in the document', async () => {
      expect(await moved(() => verdictsOf(things, ends()))).toEqual(['recorded', 'recorded'])
      expect(await read(things, first.id)).toMatchObject({ phase: 'Next' })
    })

    test('by one update of both: it is recorded in the copy only, and passes for recorded', async () => {
      expect(await moved(() => verdictsOf(unaware(), ends()))).toEqual(['recorded', 'recorded'])
      expect(await on(0).findOne(idOf(first))).toMatchObject({ phase: 'Next' })
      expect(await read(things, first.id)).toMatchObject({ phase: 'Working', lockedBy: first.token })
    })
  })
})
