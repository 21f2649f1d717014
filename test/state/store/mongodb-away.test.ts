import { expect, test } from '@jest/globals'
import { MongoClient } from 'mongodb'
import { SharedStore } from 'phaselock-state'
import { silentLogger } from '../../../src/phases/reporting/logger.js'
import { eventually, testServerUri, useDatabase, withDatabase } from '../../support/database.js'
import { TcpProxy } from '../../support/tcp-proxy.js'

const database = useDatabase()

test('a server that is away is an error within 5 s, whatever the patience of the client, and is back by itself', async () => {
  const proxy = await TcpProxy.start(testServerUri())
  const client = await new MongoClient(withDatabase(proxy.uri, database.db.databaseName), {
    heartbeatFrequencyMS: 500,
    serverSelectionTimeoutMS: 300_000,
  }).connect()
  try {
    const store = new SharedStore({ client: client.db(), logger: silentLogger })
    const values = store.of<string>('away')
    await values.set('a', 'before')
    for (const breaks of [() => proxy.refuse(), () => proxy.blackhole()]) {
      breaks()
      const asked = [values.get('a'), values.set('b', 'late'), values.getOrLoad('c', () => 'x')]
      const away = {
        reason: { name: 'StoreUnavailable', message: expect.stringContaining('no answer within 5000 ms') },
      }
      expect(await Promise.allSettled(asked)).toMatchObject([away, away, away])
      expect(await values.get('a', { otherwise: 'otherwise' })).toBe('otherwise')
      proxy.pass()
      await eventually(async () => (await values.get('a')) === 'before')
    }
    await store.close()
  } finally {
    await client.close()
    await proxy.stop()
  }
})
