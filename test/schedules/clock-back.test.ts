import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { Db, MongoClient } from 'mongodb'
import { lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { type Decision, decide } from '../../src/schedules/decide.js'
import { type ScheduleDocument, Schedules } from '../../src/schedules/index.js'
import { clientAt } from '../lock/fixture.js'
import { useDatabase } from '../support/database.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { ShiftedClock } from '../support/thing.js'

const HOUR = 3_600_000

describe("what was planned before the server's clock stepped back", () => {
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

  test.each<[string, object]>([
    ['an interval', { interval: '5s' }],
    ['a cron expression', { cron: '*/5 * * * * *' }],
  ])('%s of 5 s goes on at its pace, also through times at which it has run', async (_what, timing) => {
    const ran: string[] = []
    const schedules = new Schedules({
      ...{ db, clock, logger: silentLogger },
      tasks: { work: async (_args, run) => void ran.push(run.id) },
    })
    const replica = new Replica({ db, clock, lifecycles: schedules.lifecycles, logger: silentLogger, doorbell: 'off' })
    replicas.push(replica)
    await schedules.upsert('s', { task: 'work', ...timing } as never)
    await replica.runOnce()
    for (let i = 0; i < 3; i += 1) {
      timePasses(5_000)
      await replica.runOnce()
    }
    const before = ran.length
    expect(before).toBeGreaterThanOrEqual(2)
    proxy.stepClock(-20_000) // through the times of all its runs
    await replica.runOnce()
    for (let i = 0; i < 6; i += 1) {
      timePasses(5_000)
      await replica.runOnce()
    }
    expect(ran.length - before).toBeGreaterThanOrEqual(4)
    expect(new Set(ran).size).toBe(ran.length)
    proxy.stepClock(-HOUR)
    await replica.runOnce()
    timePasses(2_000)
    await replica.runOnce()
    const [{ now }] = (await db.aggregate([{ $documents: [{}] }, { $set: { now: '$$NOW' } }]).toArray()) as [
      { now: Date },
    ]
    const { nextRunAt } = (await schedules.get('s'))!
    expect(nextRunAt!.getTime() - now.getTime()).toBeLessThanOrEqual(5_000)
  })

  test('a wait, and a pause after an error, begin anew', async () => {
    let looks = 0
    const things = lifecycleOf<{ _id: string }>()
      .define({ name: 'thing', collection: 'Thing', phases: { Waiting: { next: ['Over'] }, Over: { final: true } } })
      .handle({
        Waiting: async (doc, step) => {
          looks += 1
          if (doc._id === 'fails') throw new Error('no')
          return step.wait('rain', { for: '2s' })
        },
      })
    const replica = new Replica({ db, clock, lifecycles: [things], logger: silentLogger, doorbell: 'off' })
    replicas.push(replica)
    await replica.prepare()
    await things.insertMany([{ _id: 'waits' }, { _id: 'fails' }])
    await replica.runOnce()
    expect(looks).toBe(2)
    proxy.stepClock(-HOUR)
    await replica.runOnce()
    timePasses(5_000)
    await replica.runOnce()
    expect(looks).toBe(4)
  })
})

describe('what a schedule calls for after a step back', () => {
  const at = (text: string) => new Date(`2026-11-21T${text}Z`)
  const plannedAt = (time: Date, fields: object, more: object): ScheduleDocument => {
    const all = { task: 'sync', isActive: true, ...fields }
    return {
      ...{ _id: 's', ...all, known: all, createdAt: at('01:00:00') },
      ...{ progress: { history: [{ at: time }] }, ...more },
    } as never
  }
  const next = ({ runs, set }: Decision) => [runs.map((run) => run._id), set.nextRunAt, set.repeats]

  test('one that has run at its hour does not run at it again', () => {
    const doc = plannedAt(
      at('04:00:00'),
      { cron: '30 3 * * *' },
      { lastRunAt: at('03:30:00'), nextRunAt: new Date('2026-11-22T03:30:00Z') },
    )
    const replanned = decide(doc, at('03:10:00'))
    expect(replanned).toMatchObject({ phase: 'Active', runs: [], wakeAt: at('03:30:00') })
    const again = decide(
      { ...doc, ...replanned.set, progress: { history: [{ at: at('03:10:00') }] } } as never,
      at('03:30:00'),
    )
    // The one that is there already.
    expect(again.runs.map((run) => run._id)).toEqual(['s@2026-11-21T03:30:00.000Z'])
  })

  test('one for every hour runs again, under another id, the same on all replicas', () => {
    const doc = plannedAt(
      at('04:00:00'),
      { cron: '0 * * * *' },
      { lastRunAt: at('04:00:00'), nextRunAt: at('05:00:00') },
    )
    const replanned = decide(doc, at('02:30:00'))
    const mark = at('02:30:00').getTime().toString(36)
    expect(next(replanned)).toEqual([[], at('03:00:00'), { until: at('04:00:00'), mark }])
    const since = { ...doc, ...replanned.set, progress: { history: [{ at: at('02:30:00') }] } } as never
    const again = decide(since, at('03:00:00'))
    expect(again.runs.map((run) => run._id)).toEqual([`s@2026-11-21T03:00:00.000Z+${mark}`])
    expect(decide(since, at('03:00:01')).runs.map((run) => run._id)).toEqual(again.runs.map((run) => run._id))
    const later = decide({ ...(since as object), ...again.set, nextRunAt: at('05:00:00') } as never, at('05:00:00'))
    expect(next(later)).toEqual([['s@2026-11-21T05:00:00.000Z'], at('06:00:00'), null])
  })
})
