import { afterEach, describe, expect, it } from '@jest/globals'
import type { CommandStartedEvent, MongoClient } from 'mongodb'
import { MongoClient as Client } from 'mongodb'
import {
  connectDatabase,
  type DatabaseConnection,
  protocolClientOptions,
  protocolCollection,
  renewalClient,
} from '../../src/database/index.js'
import { withoutProtocolOptions } from '../../src/database/uri.js'
import { durableThere, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'

/** Everything in a URI that the lock protocol has to overrule. */
const HOSTILE =
  'w=1&journal=false&readPreference=secondary&maxStalenessSeconds=120&readPreferenceTags=dc:ny&readConcernLevel=available' +
  '&retryWrites=false&socketTimeoutMS=0&serverSelectionTimeoutMS=900000&connectTimeoutMS=900000&waitQueueTimeoutMS=0&appName=other'

const test = useDatabase()
const opened: { close(): Promise<void> }[] = []
afterEach(async () => {
  for (const each of opened.splice(0)) await each.close()
})

async function connect(query: string): Promise<DatabaseConnection> {
  const joint = test.uri.includes('?') ? '&' : '?'
  const connection = await connectDatabase({ uri: `${test.uri}${joint}${query}` })
  opened.push(connection)
  return connection
}

describe('protocolClientOptions', () => {
  it.each([30_000, 3_000, 1_000])(
    'bounds every wait of the driver by a third of a lock timeout of %d ms',
    (lockTimeoutMs) => {
      const options = protocolClientOptions(lockTimeoutMs)
      for (const wait of [
        'serverSelectionTimeoutMS',
        'connectTimeoutMS',
        'socketTimeoutMS',
        'waitQueueTimeoutMS',
      ] as const) {
        expect(options[wait]).toBeGreaterThan(0)
        expect(options[wait]).toBeLessThanOrEqual(lockTimeoutMs / 3)
      }
    },
  )

  it('are in force in connectDatabase, whatever the URI says', async () => {
    const { client } = await connect(HOSTILE)
    expect(client.options).toMatchObject({
      appName: 'phaselock',
      serverSelectionTimeoutMS: 10_000,
      connectTimeoutMS: 2_000,
      heartbeatFrequencyMS: 2_000,
      socketTimeoutMS: 10_000,
      waitQueueTimeoutMS: 10_000,
      retryWrites: true,
    })
    expect(client.options.writeConcern).toMatchObject({ w: 'majority', journal: true })
    expect(client.options.readPreference.mode).toBe('primary')
  })
})

describe('protocolCollection', () => {
  // The embedded engine drops a connection that sends such text, so that no document with it can be made here.
  it('reads text that is no UTF-8 with replacement characters, not with an error for the whole batch', () => {
    expect(protocolCollection(test.db, 'Thing').bsonOptions.enableUtf8Validation).toBe(false)
  })

  /** A client whose own settings are hostile too, as a user's might be, and what it sends. */
  async function hostileClient(): Promise<{ client: MongoClient; sent: CommandStartedEvent[] }> {
    const client = new Client(withoutProtocolOptions(test.uri), {
      monitorCommands: true,
      writeConcern: { w: 1, journal: false },
      readPreference: 'secondaryPreferred',
      readConcern: { level: 'available' },
    })
    const sent: CommandStartedEvent[] = []
    client.on('commandStarted', (event) => sent.push(event))
    opened.push(client)
    return { client: await client.connect(), sent }
  }

  it('sends durable writes and reads from the primary, whatever the client says', async () => {
    const { client, sent } = await hostileClient()
    const collection = protocolCollection<{ _id: number; n?: number }>(client.db(test.db.databaseName), 'c')
    await collection.insertOne({ _id: 1 })
    await collection.updateMany({}, { $set: { n: 1 } })
    await collection.findOneAndUpdate({ _id: 1 }, { $set: { n: 2 } })
    await collection.bulkWrite([{ updateOne: { filter: { _id: 1 }, update: { $set: { n: 3 } } } }])
    await collection.deleteMany({})
    await collection.find({}).toArray()
    await collection.findOne({}, { readConcern: { level: 'majority' } })
    const commands = sent.map(({ commandName, command }) => ({ commandName, command }))
    const writes = commands.filter(({ commandName }) => commandName !== 'find')
    expect(writes.map(({ commandName }) => commandName)).toEqual([
      'insert',
      'update',
      'findAndModify',
      'update',
      'delete',
    ])
    const durable = await durableThere(test.db)
    for (const { command } of writes) expect(command['writeConcern']).toEqual(durable)
    const reads = commands.filter(({ commandName }) => commandName === 'find').map(({ command }) => command)
    expect(reads.map((command) => command['readConcern'])).toEqual([{ level: 'local' }, { level: 'majority' }])
    expect(collection.readPreference?.mode).toBe('primary')
    for (const command of reads) expect(command['$readPreference']?.mode ?? 'primary').not.toMatch(/secondary/)
  })
})

describe('what writes must have survived', () => {
  const ALONE = { w: 1, j: true }
  const MAJORITY = { w: 'majority', j: true }
  const SET = { setName: 'rs0', hosts: ['127.0.0.1:1'], secondary: false, setVersion: 1 }

  it.each([
    ['a server that stands alone', {}, ALONE],
    ['a member of a replica set', SET, MAJORITY],
    ['a mongos', { msg: 'isdbgrid' }, MAJORITY],
  ])('%s: by its hello, before a client has connected, and over our own clients', async (_, hello, expected) => {
    const proxy = await TcpProxy.start(test.uri)
    proxy.answerHello({ ...(await plainHello()), ...hello })
    opened.push({ close: () => proxy.stop() })
    const theirs = new Client(proxy.uri, { writeConcern: { w: 1, journal: false } })
    opened.push(theirs)
    await protocolCollection<{ _id: number }>(theirs.db(test.db.databaseName), 'c').insertMany([{ _id: 1 }])
    const connection = await connectDatabase({ uri: proxy.uri })
    opened.push(connection)
    await connection.db.collection<{ _id: number }>('c').insertOne({ _id: 2 })
    await (await renewalClient(connection)).db('other').collection<{ _id: number }>('c').deleteOne({ _id: 2 })
    const writes = proxy.seen.filter(({ name }) => ['insert', 'delete'].includes(name))
    expect(writes.map(({ body }) => body['writeConcern'])).toEqual([expected, expected, expected])
  })

  it('is still known while the server is away', async () => {
    const proxy = await TcpProxy.start(test.uri)
    opened.push({ close: () => proxy.stop() })
    proxy.answerHello(await plainHello())
    const { client, db } = await connectDatabase({ uri: proxy.uri, lockTimeout: '3s' })
    opened.push(client)
    const collection = protocolCollection<{ _id: number }>(db, 'c')
    const away = new Promise((resolve) => client.once('serverDescriptionChanged', resolve))
    proxy.refuse()
    await away
    const writing = collection.insertMany([{ _id: 1 }])
    proxy.pass()
    await writing
    expect(proxy.seen.find(({ name }) => name === 'insert')!.body['writeConcern']).toEqual(ALONE)
  })

  /** What a server that stands alone says, whatever the run's server is. */
  async function plainHello() {
    const { setName, msg, hosts, primary, me, topologyVersion, ...plain } = await test.db.admin().command({ hello: 1 })
    return { ...plain, isWritablePrimary: true }
  }
})

describe('renewalClient', () => {
  it('works on a connection of its own when the pool is full, and ends with its connection', async () => {
    const connection = await connect('maxPoolSize=1')
    const renewals = await renewalClient(connection)
    expect(renewals.options).toMatchObject({ maxPoolSize: 1, socketTimeoutMS: 10_000 })
    const log = await test.db.createCollection('log', { capped: true, size: 4096 })
    await log.insertOne({ n: 1 })
    const following = connection.db
      .collection('log')
      .find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 3_000 })
    await following.next()
    let waiting = true
    const next = following.next().finally(() => {
      waiting = false // the look that waits for the next entry occupies the only connection until then
    })
    await renewals.db(test.db.databaseName).collection('c').insertOne({ n: 2 })
    expect(waiting).toBe(true)
    await log.insertOne({ n: 2 })
    await next
    await following.close()
    let closed = false
    renewals.on('topologyClosed', () => {
      closed = true
    })
    await connection.close()
    expect(closed).toBe(true)
  })
})
