import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from '@jest/globals'
import { bucketLifecycle } from 'phaselock-tasks'
import { Replica } from '../../../src/index.js'
import { eventually, useDatabase } from '../../support/database.js'

const database = useDatabase()

test('where something else than a storage answers 404, no bucket is gone for that: its document waits', async () => {
  const { db } = database
  const server = createServer((_request, response) => response.writeHead(404).end('default backend - 404'))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const storage = { eu: { endpoint, credentials: { accessKeyId: 'a', secretAccessKey: 'b' } } }
  const replica = new Replica({ db, lifecycles: [bucketLifecycle({ db, storage })], name: 'r1' })
  const buckets = db.collection<{ _id: string }>('Bucket')
  const made = { bucket: 'shop', storedIn: 'eu', reserved: 'eu/shop', mark: 'of this document' }
  await buckets.insertOne({ _id: 'shop', phase: 'Deleting', ...made } as { _id: string })
  await eventually(
    async () => {
      await replica.runOnce()
      const waitingFor = expect.stringContaining("isn't a storage (404)")
      expect(await buckets.findOne()).toMatchObject({ phase: 'Deleting', ...made, progress: { waitingFor } })
    },
    { timeoutMs: 100_000 },
  )
  await replica.stop()
  server.closeAllConnections()
  server.close()
})
