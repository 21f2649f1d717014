import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { buildIndex, connectDatabase, type DatabaseConnection } from '../../src/database/index.js'
import { sleep } from '../../src/time/index.js'
import { eventually, useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { recordingLogger, replicaOf, thingOf, things, thingWith } from '../support/thing.js'

/** The client gives up other commands after 333 ms. */
const LOCK_TIMEOUT_MS = 1_000
const LONGER_MS = 700

const database = useDatabase()
let proxy: TcpProxy
let connection: DatabaseConnection

beforeEach(async () => {
  proxy = await TcpProxy.start(database.uri)
  connection = await connectDatabase({ uri: proxy.uri, lockTimeout: `${LOCK_TIMEOUT_MS}ms`, timeout: '10s' })
})
afterEach(async () => {
  proxy.pass()
  await connection.close()
  await proxy.stop()
})

const replica = () => {
  const handler = thingWith(async (_doc, step) => step.moveTo('Created'), thingOf({ lockTimeout: '1s' }))
  return replicaOf(connection.db, handler)
}

test('replicas start, all of them, though an index takes longer to build than a third of lockTimeout', async () => {
  const held = proxy.hold('createIndexes')
  const starting = Promise.all([replica().prepare(), replica().prepare()])
  const build = await held
  await sleep(LONGER_MS)
  build.release()
  await starting
  expect((await things(database.db).indexes()).map(({ name }) => name)).toContain('phase_1_lockedAt_1_updatedAt_1')
})

test('a connection that ends while an index is built ends no start', async () => {
  const cut = [proxy.cutAfter('createIndexes'), proxy.cutBefore('createIndexes', 2)]
  await replica().prepare()
  await Promise.all(cut)
  expect(await things(database.db).indexes()).toHaveLength(3)
})

test('says that it waits, and ends after its own limit', async () => {
  const { lines, info } = recordingLogger()
  const held = proxy.hold('createIndexes')
  const building = buildIndex(
    connection.db.collection('Thing'),
    { n: 1 },
    { waiting: info, everyMs: 20, withinMs: 500 },
  )
  const failed = building.catch((error: Error) => error)
  await held
  await eventually(() => expect(lines.length).toBeGreaterThan(1))
  expect(lines[0]!.message).toMatch(/^still building index \{"n":1\} of Thing, after /)
  expect(await failed).toMatchObject({ name: 'MongoNetworkTimeoutError' })
})

test('a server without room for an index is told as that', async () => {
  const reply = { ok: 0, code: 14031, codeName: 'OutOfDiskSpace', errmsg: 'available disk space of 1 byte is less' }
  void proxy.answer('createIndexes', reply)
  await expect(replica().prepare()).rejects.toMatchObject({
    name: 'ServerOutOfSpace',
    message: expect.stringMatching(
      /^expected the server to have room for index \{.+\} of Thing, got: available disk space of 1 byte is less; free some/,
    ),
  })
})
