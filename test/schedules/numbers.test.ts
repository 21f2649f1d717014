import { describe, expect, test } from '@jest/globals'
import { type BSONSerializeOptions, Long, MongoClient } from 'mongodb'
import { useDatabase } from '../support/database.js'
import { dueSince, useSchedulers } from './support.js'

describe('schedules in a database that reads numbers by options of its own', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  test.each<[BSONSerializeOptions]>([[{ promoteValues: false }], [{ promoteLongs: false }], [{ useBigInt64: true }]])(
    '%p: are planned, and their tasks get JSON',
    async (options) => {
      const client = await new MongoClient(database.uri, options).connect()
      try {
        const db = client.db(database.db.databaseName)
        const got: unknown[] = []
        const work = async (args: any, run: { attempt: number }) => {
          got.push([args, run.attempt])
          if (run.attempt === 1) throw new Error('once more')
          return args
        }
        const one = scheduler(db, { tasks: { work } })
        const retry = { attempts: Long.fromNumber(2), backOff: 0.001 }
        const numbers = { interval: Long.fromNumber(3_600), maxInstances: Long.fromNumber(2), timeout: 30, retry }
        await database.db
          .collection('schedules')
          .insertOne({ _id: 's' as never, task: 'work', args: { n: Long.fromNumber(7), list: [1, 1.5] }, ...numbers })
        await one.replica.runOnce()
        expect(await one.schedules.get('s')).toMatchObject({ phase: 'Active' })
        await dueSince(database.db, 's', 1_000)
        for (let tick = 0; tick < 50 && got.length < 2; tick += 1) await one.replica.runOnce()
        const args = { n: 7, list: [1, 1.5] }
        expect(got).toEqual([
          [args, 1],
          [args, 2],
        ])
        expect(await one.schedules.runs('s')).toMatchObject([{ phase: 'Completed', attempt: 2, result: args }])
      } finally {
        await client.close()
      }
    },
  )
})
