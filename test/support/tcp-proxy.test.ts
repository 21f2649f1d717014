import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { type Collection, type Document, MongoClient, MongoNetworkError } from 'mongodb'
import { systemClock } from '../../src/time/index.js'
import { eventually, useDatabase } from './database.js'
import { TcpProxy } from './tcp-proxy.js'

describe('the proxy between driver and server', () => {
  const database = useDatabase()
  let proxy: TcpProxy
  let client: MongoClient
  let through: Collection<{ _id: string; n: number }>

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
    client = await new MongoClient(proxy.uri, {
      retryWrites: false,
      retryReads: false,
      socketTimeoutMS: 3_000,
    }).connect()
    through = client.db(database.db.databaseName).collection('Thing')
    await through.insertOne({ _id: 'a', n: 0 })
  })
  afterEach(async () => {
    await proxy.stop()
    await client.close()
  })
  const n = async () => (await database.db.collection<{ _id: string; n: number }>('Thing').findOne({ _id: 'a' }))?.n
  const increment = () => through.updateOne({ _id: 'a' }, { $inc: { n: 1 } })

  test('passes commands and knows their names and documents', async () => {
    await increment()
    expect(await n()).toBe(1)
    const [update] = proxy.seen.filter((command) => command.name === 'update')
    expect(update?.body).toMatchObject({ update: 'Thing', updates: [{ q: { _id: 'a' } }] })
  })

  test("steps the server's clock: each command that reads it sees the same other time", async () => {
    const hour = 3_600_000
    const stamp = { $set: { now: '$$NOW' } }
    const seen = async () => {
      await through.updateOne({ _id: 'a' }, [stamp])
      const read: (Document | null | undefined)[] = [
        await through.findOne({ _id: 'a' }),
        await through.findOneAndUpdate({ _id: 'a' }, [stamp], { returnDocument: 'after' }),
        await through.findOne({}, { projection: { now: '$$NOW' } }),
        (await through.aggregate([stamp, { $unionWith: 'none' }]).toArray())[0],
      ]
      const now = systemClock.now().getTime()
      return read.map((one) => Math.round((one!['now'].getTime() - now + 10_000) / hour) * hour)
    }
    expect(await seen()).toEqual([0, 0, 0, 0])
    proxy.stepClock(hour)
    expect(await seen()).toEqual([hour, hour, hour, hour])
    proxy.stepClock(-2 * hour)
    expect(await seen()).toEqual([-hour, -hour, -hour, -hour])
    const later = { $expr: { $gt: ['$$NOW', new Date()] } }
    expect((await through.deleteMany(later)).deletedCount).toBe(0)
    proxy.stepClock(2 * hour)
    expect((await through.deleteMany(later)).deletedCount).toBe(1)
  })

  test('cuts before the nth matching command: it is never executed', async () => {
    const struck = proxy.cutBefore('update', 2)
    await increment()
    await expect(increment()).rejects.toThrow(MongoNetworkError)
    expect(await struck).toMatchObject({ update: 'Thing' })
    expect(await n()).toBe(1)
    await increment()
    expect(await n()).toBe(2)
  })

  test('cuts after the execution and before the reply', async () => {
    void proxy.cutAfter('update')
    await expect(increment()).rejects.toThrow(MongoNetworkError)
    expect(await n()).toBe(1)
  })

  test('holds a command until long after the client has given up, then lets it go', async () => {
    const held = proxy.hold('update')
    await expect(increment()).rejects.toThrow(MongoNetworkError)
    expect(await n()).toBe(0)
    ;(await held).release()
    await eventually(async () => (await n()) === 1)
  })

  test('answers with an error of its own', async () => {
    void proxy.answer('update', { ok: 0, code: 91, codeName: 'ShutdownInProgress', errmsg: 'going' })
    await expect(increment()).rejects.toMatchObject({ code: 91 })
    expect(await n()).toBe(0)
  })

  test('blackholes, and goes on where it was', async () => {
    proxy.blackhole()
    const first = increment()
    await expect(first).rejects.toThrow(MongoNetworkError)
    expect(await n()).toBe(0)
    proxy.pass()
    // The driver may just have given up its pool because of a heartbeat.
    await eventually(increment)
    expect(await n()).toBeGreaterThanOrEqual(1)
  })

  test('refuses, and comes back', async () => {
    proxy.refuse()
    await expect(increment()).rejects.toThrow()
    proxy.pass()
    await eventually(increment)
    expect(await n()).toBeGreaterThanOrEqual(1)
  })
})
