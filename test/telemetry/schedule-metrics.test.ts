import { describe, expect, test } from '@jest/globals'
import { LockProviderUnavailable, mongoLockProvider } from '../../src/locks/index.js'
import { type ReplicaMetrics, replicaMetrics, workersMetrics } from '../../src/telemetry/index.js'
import { dueSchedule, dueSince, passForRuns, useSchedulers } from '../schedules/support.js'
import { takeCensuses } from '../support/census.js'
import { eventually, useDatabase } from '../support/database.js'
import { amidRebuild } from '../support/index-rebuild.js'
import { gate } from '../support/thing.js'

/** A busy machine. */
const PATIENTLY = { timeoutMs: 60_000 }

const ended = (task: string, outcome: string, why: string) =>
  `phaselock_schedule_runs_total{lifecycle="schedules",task="${task}",outcome="${outcome}",why="${why}"}`

describe('the metrics of schedules', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  async function sample(metrics: ReplicaMetrics, series: string): Promise<number | undefined> {
    const line = (await metrics.registry.metrics()).split('\n').find((one) => one.startsWith(`${series} `))
    return line === undefined ? undefined : Number(line.slice(series.length))
  }

  test('runs by outcome and why, retries, and how late they began', async () => {
    const { db } = database
    let fails = true
    const work = async () => {
      if (fails) throw new Error('no')
    }
    const one = scheduler(db, { tasks: { work } })
    const metrics = replicaMetrics({ db, lifecycles: one.schedules.lifecycles, processMetrics: false })
    const count = (outcome: string, why: string) => sample(metrics, ended('work', outcome, why))
    // Before anything has run, so that the first failure is an increase.
    expect(await count('Failed', 'error')).toBe(0)

    await dueSchedule(one, db, { retry: { attempts: 2, backOff: '20s' } })
    await dueSince(db, 's', 40_000)
    await one.replica.runOnce()
    expect(await count('Failed', 'error')).toBe(0)
    expect(await sample(metrics, 'phaselock_schedule_retries_total{lifecycle="schedules",task="work"}')).toBe(1)
    await passForRuns(db, 21_000)
    await one.replica.runOnce()
    expect(await count('Failed', 'error')).toBe(1)

    fails = false
    await dueSince(db, 's', 35_000)
    await one.replica.runOnce()
    await dueSince(db, 's', 600_000)
    await one.replica.runOnce()
    expect(await count('Completed', 'done')).toBe(1)
    expect(await count('Missed', 'late')).toBe(1)
    const late = (le: string) =>
      sample(metrics, `phaselock_schedule_lateness_seconds_bucket{le="${le}",lifecycle="schedules",task="work"}`)
    // Two have begun, each in its first try only; what was Missed has not.
    expect([await late('30'), await late('+Inf')]).toEqual([0, 2])
  })

  test('a run that its replica gave back when it stopped has begun once', async () => {
    const { db } = database
    let tries = 0
    const work = async (_args: unknown, { signal }: { signal: AbortSignal }) => {
      tries += 1
      if (tries > 1) return
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    const started: string[] = []
    const observer = { started: ({ run }: { run: string }) => void started.push(run) }
    const a = scheduler(db, { tasks: { work }, observer })
    const b = scheduler(db, { tasks: { work }, observer })
    await dueSchedule(a, db)
    await eventually(async () => {
      await a.replica.tick()
      return tries === 1
    }, PATIENTLY)
    await a.replica.stop()
    // Once: later it would end the lease of the one that goes on.
    await passForRuns(db, 60_000)
    await eventually(async () => {
      await b.replica.tick()
      return (await b.schedules.runs('s'))[0]?.phase === 'Completed'
    }, PATIENTLY)
    expect(started).toEqual([(await b.schedules.runs('s'))[0]!._id])
  })

  test('what did not run: coalesced, overlapping, paused', async () => {
    const { db } = database
    const open = gate()
    const one = scheduler(db, { tasks: { work: async () => await open.wait } })
    const metrics = replicaMetrics({ db, lifecycles: one.schedules.lifecycles, processMetrics: false })
    const count = (outcome: string, why: string) => sample(metrics, ended('work', outcome, why))
    const startAt = new Date(Date.now() - 10.5 * 3_600_000)
    await dueSchedule(one, db, { interval: '3600s', startAt, misfireGraceTime: null })
    await dueSince(db, 's', 2 * 3_600_000)
    const worked = one.replica.runOnce()
    const running = 'phaselock_schedule_runs_running{lifecycle="schedules"}'
    await eventually(async () => (await sample(metrics, running)) === 1, PATIENTLY)
    // Due 120, 90 and 30 min ago: one run for all of them.
    expect(await count('Skipped', 'coalesced')).toBe(2)
    await one.schedules.run('s')
    await eventually(async () => {
      await one.replica.tick()
      return (await count('Skipped', 'overlap')) === 1
    }, PATIENTLY)
    open.open()
    await worked
    // Recorded too, so that nobody holds them any more.
    await eventually(async () => {
      const runs = await one.schedules.runs('s')
      return runs.filter(({ phase }) => phase === 'Completed' || phase === 'Skipped').length === 4
    }, PATIENTLY)
    expect(await count('Completed', 'done')).toBe(1)
    await db
      .collection('runs')
      .updateMany({ trigger: 'schedule' }, [
        { $set: { phase: 'Queued', lockedAt: new Date(0), outcome: null, startedAt: null, retryAt: null } },
      ])
    await one.schedules.pause('s')
    await eventually(async () => {
      await one.replica.tick()
      return (await count('Skipped', 'paused')) === 3
    }, PATIENTLY)
    expect(await sample(metrics, 'phaselock_schedule_oldest_run_seconds{lifecycle="schedules"}')).toBe(0)
  })

  test('schedules by phase, the last success of few, and what the metrics of documents say of them', async () => {
    const { db } = database
    const one = scheduler(db, { tasks: { work: async () => undefined } })
    const metrics = replicaMetrics({ db, lifecycles: one.schedules.lifecycles, processMetrics: false })
    expect(await metrics.registry.metrics()).not.toContain('phaselock_schedules{')
    await dueSchedule(one, db)
    await one.schedules.upsert('never-ran', { task: 'work', cron: '0 0 1 1 *' })
    await one.schedules.upsert('off', { task: 'work', cron: '0 0 1 1 *', isActive: false })
    await db.collection<{ _id: string }>('schedules').insertOne({ _id: 'bad', phase: 'Active' } as never)
    await one.replica.runOnce()
    await eventually(async () => (await one.schedules.runs('s'))[0]?.phase === 'Completed', PATIENTLY)
    const at = (await one.schedules.runs('s'))[0]!.completedAt!

    const lastSuccess = (schedule: string) =>
      `phaselock_schedule_last_success_timestamp_seconds{lifecycle="schedules",schedule="${schedule}"}`
    expect(await sample(metrics, lastSuccess('s'))).toBeCloseTo(at.getTime() / 1_000, 3)
    expect(await sample(metrics, lastSuccess('never-ran'))).toBeUndefined()
    for (const [phase, schedules] of Object.entries({ Active: 2, Paused: 1, Finished: 0, Broken: 1 })) {
      expect(await sample(metrics, `phaselock_schedules{lifecycle="schedules",phase="${phase}"}`)).toBe(schedules)
    }
    for (const name of ['schedules', 'runs']) await amidRebuild(db.collection(name))
    expect(await sample(metrics, 'phaselock_schedules{lifecycle="schedules",phase="Active"}')).toBe(2)
    expect(await sample(metrics, 'phaselock_schedule_runs_running{lifecycle="schedules"}')).toBe(0)
    // Overdue, and a run that nobody takes up: documents like others.
    await dueSince(db, 's', 100_000)
    await db
      .collection<{ _id: string }>('runs')
      .updateOne(
        { schedule: 's' },
        { $set: { phase: 'Queued', task: 'gone', outcome: null, lockedAt: new Date(0), updatedAt: new Date(0) } },
      )
    await takeCensuses(db, one.replica)
    const due = (lifecycle: string, phase: string) =>
      sample(metrics, `phaselock_oldest_due_seconds{lifecycle="${lifecycle}",phase="${phase}"}`)
    expect(await due('schedules', 'Active')).toBeGreaterThan(0)
    expect(await due('schedules.runs', 'Queued')).toBeGreaterThan(1_000)
    // None has succeeded among those that are kept.
    expect(await sample(metrics, lastSuccess('s'))).toBe(0)
    const named = replicaMetrics({ db, lifecycles: one.schedules.lifecycles, scheduleNames: ['off'] })
    expect(await named.registry.metrics()).not.toContain('schedule="s"')
  })

  test('of a schedule that fails for months a scrape reads the latest runs only', async () => {
    const { db } = database
    const one = scheduler(db, { tasks: { work: async () => undefined } })
    const metrics = replicaMetrics({ db, lifecycles: one.schedules.lifecycles, processMetrics: false })
    const due = await dueSchedule(one, db)
    await one.replica.runOnce()
    await eventually(async () => (await one.schedules.runs('s'))[0]?.phase === 'Completed', PATIENTLY)
    const failed = (i: number) => {
      const scheduledFor = new Date(due.getTime() + 1_000 + i)
      return { _id: `failed-${i}`, phase: 'Failed', schedule: 's', scheduledFor, lockedAt: scheduledFor }
    }
    const runs = db.collection<{ _id: string }>('runs')
    await runs.insertMany(Array.from({ length: 999 }, (_, i) => failed(i)))
    const lastSuccess = 'phaselock_schedule_last_success_timestamp_seconds{lifecycle="schedules",schedule="s"}'
    expect(await sample(metrics, lastSuccess)).toBeGreaterThan(0)
    await runs.insertOne(failed(999))
    expect(await sample(metrics, lastSuccess)).toBe(0)
  })

  test('the supervisor of workers counts what is in the database, each worker what it did', async () => {
    const { db } = database
    const one = scheduler(db, { tasks: { work: async () => undefined } })
    const { lifecycles } = one.schedules
    const [a, b] = [0, 1].map(() => replicaMetrics({ db, lifecycles, documents: false, processMetrics: false }))
    await dueSchedule(one, db)
    await one.replica.runOnce()
    const all = workersMetrics({
      db,
      lifecycles,
      ofWorkers: () => Promise.all([a!.registry.getMetricsAsJSON(), b!.registry.getMetricsAsJSON()]),
      counts: () => ({ wanted: 2, working: 2, restarts: 0 }),
    })
    const text = await all.metrics()
    expect(text).toContain('phaselock_schedules{lifecycle="schedules",phase="Active"} 1')
    // Both registries watch the one that ran.
    expect(text).toContain(`${ended('work', 'Completed', 'done')} 2`)
    expect(text.match(/^# TYPE phaselock_schedules /gm)).toHaveLength(1)
  })

  test('a lock that can not be extended or freed, and schedules that are told of later', async () => {
    const { db } = database
    const inner = mongoLockProvider(db, { name: 'pod' })
    const away = () => Promise.reject(new LockProviderUnavailable('mongodb', 'extend', new Error('down')))
    const locks: typeof inner = Object.create(inner, {
      lock: {
        value: async (config: Parameters<typeof inner.lock>[0]) => {
          const lock = await inner.lock(config)
          return lock && { name: lock.name, lockedBy: lock.lockedBy, fence: lock.fence, unlock: away, extend: away }
        },
      },
    })
    const ends: string[] = []
    const observer = { ended: ({ why }: { why: string }) => void ends.push(why) }
    const one = scheduler(db, { tasks: { work: async () => undefined }, locks, observer })
    const metrics = replicaMetrics({ db, lifecycles: [], processMetrics: false })
    metrics.watchSchedules(one.schedules)
    metrics.watchSchedules(one.schedules)
    await dueSchedule(one, db)
    await one.replica.runOnce()
    const failed = 'phaselock_lock_commands_failed_total{lock="scheduler_lock",action="unlock"}'
    expect(await sample(metrics, failed)).toBe(1)
    expect(await sample(metrics, ended('work', 'Completed', 'done'))).toBe(1)
    await takeCensuses(db, one.replica)
    expect(await sample(metrics, 'phaselock_documents_due{lifecycle="schedules",phase="Active"}')).toBe(0)
    expect(ends).toEqual(['done'])
  })
})
