import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { ShardedCollections } from '../../src/database/public.js'
import { checkDatabase, undoOperation } from '../../src/operations/index.js'
import { ASLEEP, BulkWorld, IN_AN_HOUR, many } from '../operations/bulk-world.js'
import { eventually, useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'
import { shard } from './chunks.ts'
import { ShardedCluster } from './cluster.ts'
import { describeWithMongos } from './mongos.js'

describeWithMongos('behind a router', () => {
  let cluster: ShardedCluster
  let monitored: MongoClient
  const asked: string[] = []
  /** Writes of several documents, by their collection. */
  const together: string[] = []
  beforeAll(async () => {
    cluster = await ShardedCluster.start()
    monitored = new MongoClient(cluster.uris[0], { monitorCommands: true })
    monitored.on('commandStarted', ({ commandName, command }) => {
      const filter = command['explain']?.filter
      asked.push(filter ? `${commandName} ${JSON.stringify(filter)}` : commandName)
      const isOfMany = (one: Document) => one['multi'] === true || one['limit'] === 0
      if ([command['updates'] ?? command['deletes'] ?? []].flat().some(isOfMany)) together.push(command[commandName])
    })
  }, 240_000)
  beforeEach(() => {
    asked.length = 0
    together.length = 0
  })
  const database = useDatabase(() => cluster.uris[0])
  afterAll(async () => {
    await monitored?.close()
    await cluster?.close()
  }, 60_000)

  const bound = thingWith(async (_doc, step) => step.moveTo('Created'))
  const replicaThere = () => replicaOf(monitored.db(database.db.databaseName), bound, { doorbell: 'off' })
  const insert = (...ids: string[]) =>
    things(database.db).insertMany(ids.map((_id) => ({ _id, phase: 'Creating', tenant: 't' })))
  const problems = async () => {
    const results = await checkDatabase({ db: database.db, models: [bound.model] })
    return results.flatMap(({ findings }) => findings)
  }

  describe('refused, and nothing is written', () => {
    test.each<[string, Document]>([
      ['Thing', { tenant: 1 }],
      ['Thing', { tenant: 'hashed' }],
      // Then an _id may be there once for each tenant.
      ['Thing', { _id: 1, tenant: 1 }],
      ['Thing', { tenant: 1, _id: 1 }],
      ['phaselock.lifecycles', { _id: 1 }],
      ['phaselock.lifecycles', { _id: 'hashed' }],
      ['phaselock.limits', { _id: 'hashed' }],
      ['phaselock.duties', { _id: 1 }],
    ])('%s sharded by %j', async (collection, key) => {
      await insert('a')
      await shard(database.db, collection, key)
      const replica = replicaThere()
      const error = await replica.start().catch((thrown: unknown) => thrown)
      await replica.stop()
      expect(error).toBeInstanceOf(ShardedCollections)
      expect(error).toMatchObject({ database: database.db.databaseName, collections: [collection] })
      expect(String(error)).toMatch(/^ShardedCollections: expected the collections of the database 't_\w+' to be /)
      expect(await things(database.db).findOne({ _id: 'a' })).toEqual({ _id: 'a', phase: 'Creating', tenant: 't' })
      expect(await database.db.collection('phaselock.lifecycles').countDocuments()).toBe(0)
    })

    test('`check` finds it, where it was sharded under replicas that had started', async () => {
      const replica = replicaThere()
      await replica.prepare()
      await shard(database.db, 'Thing', { tenant: 1 })
      const found = (await problems()).filter(({ about }) => about !== 'lifecycle thing')
      await replica.stop()
      const problem = expect.stringMatching(/^it is sharded by something else than _id/)
      expect(found).toEqual([expect.objectContaining({ about: 'collection Thing', problem })])
      await shard(database.db, 'phaselock.limits', { _id: 'hashed' })
      const both = (await problems()).filter(({ about }) => about.startsWith('collection '))
      expect(both).toContainEqual(
        expect.objectContaining({
          about: 'collection phaselock.limits',
          problem: 'it is sharded: no replica starts',
        }),
      )
    })
  })

  test.each<[Document]>([[{ _id: 'hashed' }], [{ _id: 1 }]])(
    'sharded by %j: it works, no write is of several documents, and `check` finds nothing',
    async (key) => {
      await shard(database.db, 'Thing', key)
      await insert('a', 'b', 'c', 'd')
      const replica = replicaThere()
      await replica.prepare()
      const untilThereAre = (documents: number, which: object) =>
        eventually(async () => {
          await replica.runOnce()
          expect(await things(database.db).countDocuments(which)).toBe(documents)
        })
      await untilThereAre(4, { phase: 'Created' })
      await things(database.db).updateMany({}, { $set: { state: 'Deleted' } })
      await untilThereAre(0, {}) // moved, and removed, as nothing is kept
      expect(together.filter((name) => name === 'Thing')).toEqual([])
      const found = await problems()
      await replica.stop()
      expect(found).toEqual([])
    },
  )

  test.each<[Document]>([[{ _id: 'hashed' }], [{ _id: 1 }]])(
    'sharded by %j: an operation comes by each document once, on all shards, and is undone',
    async (key) => {
      await shard(database.db, 'Thing', key)
      const w = await BulkWorld.of(monitored.db(database.db.databaseName))
      await w.things.insertMany(many(450, ASLEEP))
      const redone = await w.run('redo', { all: true }, { options: { set: { n: 1 } } })
      expect(redone).toMatchObject({ condition: 'Done', counts: { seen: 450, done: 450, failed: 0 } })
      expect(await w.things.countDocuments({ n: 1, lockedAt: new Date(0) })).toBe(450)
      await undoOperation(w.system, redone._id, { by: 'ana' })
      expect((await w.finish(`undo-${redone._id}`)).counts).toMatchObject({ seen: 450, done: 450, failed: 0 })
      expect(await w.things.countDocuments({ n: { $exists: false }, lockedAt: IN_AN_HOUR })).toBe(450)
      expect((await w.run('remove', { all: true })).counts).toMatchObject({ seen: 450, done: 450, failed: 0 })
      expect(together.filter((name) => name === 'Thing')).toEqual([])
    },
  )

  test('unsharded ones just work, are asked about at the start only, and `check` finds nothing', async () => {
    const replica = replicaThere()
    await insert('a', 'b')
    await replica.prepare()
    expect(asked).toEqual(expect.arrayContaining(['hello', 'explain {}']))
    asked.length = 0
    await replica.runOnce()
    await replica.runOnce()
    expect(asked.filter((name) => name === 'hello' || name === 'explain {}')).toEqual([])
    expect(together).toContain('Thing')
    expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' })
    const found = await problems()
    await replica.stop()
    expect(found).toEqual([])
  })
})
