import { afterEach, expect, test } from '@jest/globals'
import type { MongoClient } from 'mongodb'
import { Limits } from '../../src/index.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { clientAt } from './fixture.js'

let client: MongoClient
let proxy: TcpProxy
afterEach(async () => {
  await client.close()
  await proxy.stop()
})
const database = useDatabase()

test("a pause of a limit that only a step of the server's clock seems to have ended isn't dropped by another's", async () => {
  proxy = await TcpProxy.start(database.uri)
  client = await clientAt(proxy.uri)
  const db = client.db(database.db.databaseName)
  const limits = new Limits(db)
  const paused = async () => (await limits.list())[0]!.paused
  await limits.set('ink', { slots: 1 })
  await limits.pause('ink', { by: 'ana', for: '30m' })
  proxy.stepClock(3_600_000)
  expect(await paused()).toBeNull()
  await limits.pause('ink', { by: 'ben', for: '5m' })
  expect(await paused()).toMatchObject({ by: 'ben' })
  expect(await paused()).not.toHaveProperty('others')
  await limits.resume('ink')
  expect(await paused()).toBeNull()
  proxy.stepClock(-3_600_000)
  expect(await paused()).toMatchObject({ by: 'ana' })
  // Over for more than a day, it is dropped.
  proxy.stepClock(2 * 86_400_000)
  await limits.pause('ink', { by: 'ben', for: '5m' })
  expect((await db.collection('phaselock.limits').findOne({}))!['pauses']).toHaveLength(1)
})
