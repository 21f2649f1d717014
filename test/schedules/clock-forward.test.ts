import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Db, MongoClient } from 'mongodb'
import { Replica, silentLogger } from '../../src/index.js'
import { Schedules, starts } from '../../src/schedules/index.js'
import { clientAt } from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { ShiftedClock } from '../support/thing.js'
import { night } from './started.js'

const SECOND = 1_000
const HOUR = 3_600_000

describe("a forward step of the server's clock that is taken back before it is confirmed", () => {
  const database = useDatabase()
  let proxy: TcpProxy
  let client: MongoClient
  let db: Db
  let clock: ShiftedClock
  const replicas: Replica[] = []

  beforeEach(async () => {
    proxy = await TcpProxy.start(database.uri)
    client = await clientAt(proxy.uri)
    db = client.db(database.db.databaseName)
    clock = new ShiftedClock()
  })
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
    await client.close()
    await proxy.stop()
  })
  const timePasses = (ms: number) => {
    proxy.stepClock(ms)
    clock.advance(ms)
  }
  async function scheduled() {
    const nights = night.handle({ Counting: async (_doc, step) => step.wait('rain', { for: '5h' }) })
    const schedules = new Schedules({
      ...{ db, clock, logger: silentLogger },
      tasks: { night: starts(nights, () => ({ day: 'x' })), work: async () => undefined },
    })
    const lifecycles = [nights, ...schedules.lifecycles]
    const replica = new Replica({ db, clock, lifecycles, logger: silentLogger, doorbell: 'off' })
    replicas.push(replica)
    await replica.prepare()
    return { schedules, replica }
  }
  const runs = () => db.collection<{ _id: string }>('runs')

  test('ends no run by its timeout, and stops no document', async () => {
    const { schedules, replica } = await scheduled()
    await schedules.upsert('s', { task: 'night', cron: '0 0 1 1 *', timeout: '30m' })
    const id = await schedules.run('s')
    await replica.runOnce()
    await replica.runOnce()
    expect(await runs().findOne({ _id: id })).toMatchObject({ phase: 'Running', started: { id } })
    timePasses(40 * SECOND)
    await replica.runOnce()
    proxy.stepClock(HOUR)
    await replica.runOnce()
    timePasses(25 * SECOND) // it looks each minute
    await replica.runOnce()
    const { progress, ...run } = (await runs().findOne({ _id: id })) as { progress?: { at: Date }; phase?: string }
    expect(run).toMatchObject({ phase: 'Running' })
    expect(run).not.toHaveProperty('stopping')
    proxy.stepClock(-HOUR)
    await replica.runOnce()
    timePasses(31 * 60 * SECOND)
    await replica.runOnce()
    await replica.runOnce()
    expect(progress).toBeDefined()
    expect(await runs().findOne({ _id: id })).toMatchObject({ phase: 'Failed', error: { name: 'RunTimeout' } })
  })

  test('makes no run Missed that was queued just before', async () => {
    const { replica } = await scheduled()
    await replica.runOnce()
    const scheduledFor = new Date()
    proxy.stepClock(HOUR)
    await replica.runOnce()
    await db.collection<{ _id: string }>('schedules').insertOne({ _id: 's', phase: 'Finished' } as never)
    await runs().insertOne({
      ...{ _id: 's@1', schedule: 's', task: 'work', args: {}, phase: 'Queued', scheduledFor, trigger: 'schedule' },
      ...{ startBy: new Date(scheduledFor.getTime() + 300_000), maxInstances: 1, timeoutMs: null, attempt: 1 },
      retry: { attempts: 1, backOffMs: 1_000, longestMs: 1_000 },
    } as never)
    await replica.runOnce()
    expect(await runs().findOne({ _id: 's@1' })).toMatchObject({ phase: 'Completed' })
  })
})
