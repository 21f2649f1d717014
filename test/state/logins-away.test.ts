import { expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { SharedStore } from '../../packages/state/src/index.js'
import { Logins } from '../../packages/state/src/logins/index.js'
import { silentLogger } from '../../src/index.js'
import { testServerUri, useDatabase, withDatabase } from '../support/database.js'
import { useEnds } from '../support/ends.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { ana, KEYS, profileFor, startCrm } from './crm.js'

const ends = useEnds()
const database = useDatabase()

test('while the database is away, a login is StoreUnavailable within 5 s, or the last one with staleFor', async () => {
  const crm = await startCrm()
  ends.push(() => crm.close())
  const proxy = await TcpProxy.start(testServerUri())
  ends.push(() => proxy.stop())
  const client = await new MongoClient(withDatabase(proxy.uri, database.db.databaseName), {
    heartbeatFrequencyMS: 500,
    serverSelectionTimeoutMS: 300_000,
  }).connect()
  ends.push(() => client.close())
  const [db, logger] = [client.db(), silentLogger]
  const store = new SharedStore({ client: db, logger })
  ends.push(() => store.close())
  const opened = (staleFor?: '1h') => new Logins({ db, store, keys: KEYS, staleFor, logger })
  const [strict, stale] = [opened(), opened('1h')]
  await strict.define(profileFor(crm.origin), ana)
  const { token } = await stale.context('crm', 'bo')
  expect((await strict.context('crm', 'bo')).token).toBe(token)
  proxy.blackhole()
  const outcomes = await Promise.allSettled([strict.context('crm', 'bo'), stale.context('crm', 'bo')])
  expect(outcomes).toMatchObject([
    {
      reason: {
        name: 'StoreUnavailable',
        message: expect.stringMatching(/read the login profile 'crm', got: no answer within 5000 ms/),
      },
    },
    { value: { token } },
  ])
  await expect(stale.context('crn')).rejects.toMatchObject({ name: 'StoreUnavailable' })
  expect(crm.state.logins).toBe(1)
})
