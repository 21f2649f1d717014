import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { type Document, MongoClient } from 'mongodb'
import { ShardedCollections } from '../../src/database/public.js'
import { checkDatabase } from '../../src/operations/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'
import { ShardedCluster } from './cluster.ts'
import { describeWithMongos } from './mongos.js'

describeWithMongos('behind a router', () => {
  let cluster: ShardedCluster
  let monitored: MongoClient
  const asked: string[] = []
  beforeAll(async () => {
    cluster = await ShardedCluster.start()
    monitored = new MongoClient(cluster.uris[0], { monitorCommands: true })
    monitored.on('commandStarted', ({ commandName, command }) => {
      const filter = command['explain']?.filter
      asked.push(filter ? `${commandName} ${JSON.stringify(filter)}` : commandName)
    })
  }, 240_000)
  const database = useDatabase(() => cluster.uris[0])
  afterAll(async () => {
    await monitored?.close()
    await cluster?.close()
  }, 60_000)

  const bound = thingWith(async (_doc, step) => step.moveTo('Created'))
  const replicaThere = () => replicaOf(monitored.db(database.db.databaseName), bound, { doorbell: 'off' })
  async function shard(collection: string, key: Document): Promise<void> {
    const { databaseName } = database.db
    const admin = database.client.db('admin')
    // Its first collection gives the database its shard.
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating', tenant: 't' })
    for (const field of Object.keys(key)) if (field !== '_id') await things(database.db).createIndex({ [field]: 1 })
    await admin.command({ enableSharding: databaseName })
    await things(database.db).createIndex(key)
    await admin.command({ shardCollection: `${databaseName}.${collection}`, key })
  }

  test.each<[string, Document]>([
    ['Thing', { _id: 'hashed' }],
    ['Thing', { _id: 1 }],
    ['Thing', { tenant: 1 }],
    ['phaselock.lifecycles', { _id: 1 }],
  ])('%s sharded by %j: a replica refuses to start, and has written nothing', async (collection, key) => {
    await shard(collection, key)
    const replica = replicaThere()
    const error = await replica.start().catch((thrown: unknown) => thrown)
    await replica.stop()
    expect(error).toBeInstanceOf(ShardedCollections)
    expect(error).toMatchObject({ database: database.db.databaseName, collections: [collection] })
    expect(String(error)).toMatch(
      /^ShardedCollections: expected the collections of the database 't_\w+' to be unsharded, but .+ is sharded: .+ keep them on one shard/,
    )
    expect(await things(database.db).findOne({ _id: 'a' })).toEqual({ _id: 'a', phase: 'Creating', tenant: 't' })
    expect(await database.db.collection('phaselock.lifecycles').countDocuments()).toBe(0)
  })

  test('`check` finds it, where it was sharded under replicas that had started', async () => {
    const replica = replicaThere()
    await replica.prepare()
    await shard('Thing', { _id: 'hashed' })
    const results = await checkDatabase({ db: database.db, models: [bound.model] })
    await replica.stop()
    const { findings } = results.find(({ check }) => check === 'indexes')!
    expect(findings).toEqual([
      expect.objectContaining({ about: 'collection Thing', problem: expect.stringMatching(/^it is sharded/) }),
    ])
  })

  test('unsharded ones just work, are asked about at the start only, and `check` finds nothing', async () => {
    const replica = replicaThere()
    await things(database.db).insertOne({ _id: 'a', phase: 'Creating' })
    await replica.prepare()
    expect(asked).toEqual(expect.arrayContaining(['hello', 'explain {}']))
    asked.length = 0
    await replica.runOnce()
    await replica.runOnce()
    expect(asked.filter((name) => name === 'hello' || name === 'explain {}')).toEqual([])
    expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' })
    const results = await checkDatabase({ db: database.db, models: [bound.model] })
    await replica.stop()
    expect(results.flatMap(({ findings }) => findings)).toEqual([])
  })
})
