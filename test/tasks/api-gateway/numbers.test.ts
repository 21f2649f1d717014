import { describe, expect, test } from '@jest/globals'
import { type BSONSerializeOptions, Long, MongoClient } from 'mongodb'
import { Replica, silentLogger } from '../../../src/index.js'
import { apiGatewayLifecycles } from '../../../src/tasks/index.js'
import { useDatabase } from '../../support/database.js'

describe('a gateway in a database that reads numbers by options of its own', () => {
  const database = useDatabase()

  test.each<[BSONSerializeOptions]>([[{ promoteValues: false }], [{ useBigInt64: true }]])(
    '%p: its handlers get numbers, and it is made',
    async (options) => {
      const client = await new MongoClient(database.uri, options).connect()
      try {
        const db = client.db(database.db.databaseName)
        const got: unknown[] = []
        const lifecycles = apiGatewayLifecycles({
          db,
          wrap: (lifecycle, _phase, handler) => (doc, step) => {
            if (lifecycle === 'api-gateway') got.push([doc['size'], doc['name']])
            return handler(doc, step)
          },
        }).all
        const replica = new Replica({ db, lifecycles, logger: silentLogger, doorbell: 'off', grace: '100ms' })
        await replica.prepare()
        const gateways = database.db.collection(lifecycles[0]!.model.collection)
        await gateways.insertOne({ name: 'Shop', phase: 'Creating', size: Long.fromNumber(7) })
        for (let tick = 0; tick < 20 && (await gateways.findOne({}))!['phase'] !== 'Created'; tick += 1)
          await replica.runOnce()
        await replica.stop()
        expect(await gateways.findOne({})).toMatchObject({ phase: 'Created' })
        expect(new Set(got.map(String))).toEqual(new Set(['7,Shop']))
        expect((got as [unknown, unknown][]).map(([size]) => typeof size)).toEqual(got.map(() => 'number'))
      } finally {
        await client.close()
      }
    },
  )
})
