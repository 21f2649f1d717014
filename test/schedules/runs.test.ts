import { describe, expect, test } from '@jest/globals'
import { LockProviderUnavailable, mongoLockProvider } from '../../src/locks/index.js'
import { useDatabase } from '../support/database.js'
import { dueSchedule, dueSince, passForRuns, useSchedulers } from './support.js'

describe('runs', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  test('a due time that has its run already gets no second one', async () => {
    const ran: unknown[] = []
    const one = scheduler(database.db, { tasks: { work: async () => void ran.push(1) } })
    const due = await dueSchedule(one, database.db)
    await one.replica.runOnce()
    // As after a crash between the run and the next time: the schedule still says that it is due.
    await database.db
      .collection<{ _id: string }>('schedules')
      .updateOne({ _id: 's' }, { $set: { nextRunAt: due, lockedAt: new Date(0) } })
    await one.replica.runOnce()
    expect(ran).toEqual([1])
    expect(await one.schedules.runs('s')).toHaveLength(1)
    expect((await one.schedules.get('s'))!.nextRunAt!.getTime()).toBeGreaterThan(due.getTime())
  })

  test('later than misfireGraceTime: Missed, recorded, not run; onMissed is told', async () => {
    const told: string[] = []
    const work = { run: async () => void told.push('ran'), onMissed: (run: { _id: string }) => void told.push(run._id) }
    const one = scheduler(database.db, { tasks: { work } })
    await dueSchedule(one, database.db, { misfireGraceTime: '30s' })
    const due = await dueSince(database.db, 's', 60_000)
    await one.replica.runOnce()
    expect(told).toEqual([`s@${due.toISOString()}`])
    const [run] = await one.schedules.runs('s')
    expect(run).toMatchObject({ phase: 'Missed', reason: expect.stringContaining('later than misfireGraceTime') })
    expect(run!.startedAt).toBeUndefined()
  })

  test('a failed run is tried again after a growing pause, then it has failed', async () => {
    const attempts: number[] = []
    const outcomes: unknown[] = []
    const work = {
      run: async (_args: unknown, run: { attempt: number }) => {
        attempts.push(run.attempt)
        throw new RangeError(`no ${run.attempt}`)
      },
      onFailure: async (run: object) => void outcomes.push(await database.db.collection('runs').findOne({}), run),
    }
    const one = scheduler(database.db, { tasks: { work } })
    await dueSchedule(one, database.db, { retry: { attempts: 3, backOff: '20s', longest: '30s' } })
    await one.replica.runOnce()
    const [waiting] = await one.schedules.runs('s')
    expect(waiting).toMatchObject({ phase: 'Queued', attempt: 2, error: { name: 'RangeError', message: 'no 1' } })
    expect(waiting!.retryAt!.getTime() - waiting!.startedAt!.getTime()).toBeGreaterThanOrEqual(20_000)
    await passForRuns(database.db, 21_000)
    await one.replica.runOnce()
    await passForRuns(database.db, 31_000)
    await one.replica.runOnce()
    expect(attempts).toEqual([1, 2, 3])
    const [failed] = await one.schedules.runs('s')
    expect(failed).toMatchObject({ phase: 'Failed', attempt: 3, error: { message: 'no 3' } })
    // The outcome was stored when the callback ran.
    expect(outcomes).toMatchObject([{ outcome: 'Failed', error: { message: 'no 3' } }, { outcome: 'Failed' }])
  })

  test('a retry that succeeds is Completed, and onSuccess is told once', async () => {
    const told: unknown[] = []
    const work = {
      run: async (_args: unknown, run: { attempt: number; log(message: string): void }) => {
        run.log(`try ${run.attempt}`)
        if (run.attempt === 1) throw new Error('not yet')
        return { rows: 5 }
      },
      onSuccess: (run: { result?: unknown }) => void told.push(run.result),
      onFailure: () => void told.push('failed'),
    }
    const one = scheduler(database.db, { tasks: { work } })
    await dueSchedule(one, database.db, { retry: { attempts: 2, backOff: '10s' } })
    await one.replica.runOnce()
    await passForRuns(database.db, 11_000)
    await one.replica.runOnce()
    expect(told).toEqual([{ rows: 5 }])
    const [run] = await one.schedules.runs('s')
    expect(run).toMatchObject({ phase: 'Completed', attempt: 2, error: null, result: { rows: 5 } })
    expect(run!.log!.map((line) => line.message)).toEqual(['try 1', 'try 2'])
  })

  test('a callback that throws changes no outcome', async () => {
    const work = {
      run: async () => 1,
      onSuccess: () => {
        throw new Error('mail server')
      },
    }
    const one = scheduler(database.db, { tasks: { work } })
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    const [run] = await one.schedules.runs('s')
    expect(run).toMatchObject({ phase: 'Completed', callbackError: { message: 'mail server' } })
  })

  test('the timeout aborts the signal, and the try has failed', async () => {
    const reasons: unknown[] = []
    const work = (_args: unknown, run: { signal: AbortSignal }) =>
      new Promise((resolve) => {
        run.signal.addEventListener('abort', () => {
          reasons.push((run.signal.reason as Error).name)
          resolve('too late')
        })
      })
    const one = scheduler(database.db, { tasks: { work } })
    await dueSchedule(one, database.db, { timeout: '100ms' })
    await one.replica.runOnce()
    expect(reasons).toEqual(['RunTimeout'])
    const [run] = await one.schedules.runs('s')
    expect(run).toMatchObject({ phase: 'Failed', error: { name: 'RunTimeout' } })
  })

  test('lines, counters and results are bounded', async () => {
    const work = async (_args: unknown, run: any) => {
      for (let i = 0; i < 1_000; i += 1) run.log(`line ${i} ${'x'.repeat(2_000)}`)
      for (let i = 0; i < 200; i += 1) run.count(`counter_${i}`)
      return 'y'.repeat(1_000_000)
    }
    const one = scheduler(database.db, { tasks: { work } })
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    const [run] = await one.schedules.runs('s')
    expect(run!.log).toHaveLength(200)
    expect(run!.log![0]!.message).toMatch(/^line 0 x/)
    expect(run!.log![199]!.message).toMatch(/^line 999 x/)
    expect(run!.log![0]!.message).toHaveLength(1_000)
    expect(run!.logDropped).toBe(800)
    expect(Object.keys(run!.counters!)).toHaveLength(100)
    expect(run!.result).toBeUndefined()
    expect(run!.phase).toBe('Completed')
  })

  test('a run of a task that this replica does not know is left to one that does', async () => {
    const old = scheduler(database.db, { name: 'old', tasks: { other: async () => 1 } })
    const young = scheduler(database.db, { name: 'young', tasks: { work: async () => 1, other: async () => 2 } })
    await dueSchedule(young, database.db)
    await old.replica.runOnce()
    await dueSchedule(old, database.db, { task: 'other' }, 'o')
    await old.replica.runOnce()
    expect(await old.schedules.runs('s')).toMatchObject([{ phase: 'Queued' }])
    expect(await old.schedules.runs('o')).toMatchObject([{ phase: 'Completed', by: 'old' }])
    await young.replica.runOnce()
    expect(await young.schedules.runs('s')).toMatchObject([{ phase: 'Completed', by: 'young' }])
  })

  test('a deleted, deactivated or paused schedule: its queued run is Skipped and says why', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    const client = scheduler(database.db) // knows no task: the runs stay queued
    for (const id of ['a', 'b', 'c']) await dueSchedule({ ...one, replica: client.replica }, database.db, {}, id)
    await client.replica.runOnce()
    await one.schedules.remove('a')
    await database.db.collection<{ _id: string }>('schedules').updateOne({ _id: 'b' }, { $set: { isActive: false } })
    await one.schedules.pause('c', { reason: 'the repository is moving' })
    await one.replica.runOnce()
    const reasons = await Promise.all(['a', 'b', 'c'].map(async (id) => (await one.schedules.runs(id))[0]))
    expect(reasons.map((run) => [run!.phase, run!.reason])).toEqual([
      ['Skipped', 'the schedule was deleted'],
      ['Skipped', 'the schedule was deactivated'],
      ['Skipped', 'the schedule was paused: the repository is moving'],
    ])
  })

  test('runs that are over are removed after keepFor', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 }, keepFor: { Completed: '1h' } })
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    const past = (ms: number) => [
      {
        $set: { lockedAt: { $subtract: ['$lockedAt', ms] }, 'progress.since': { $subtract: ['$progress.since', ms] } },
      },
    ]
    await database.db.collection('runs').updateMany({}, past(3_500_000))
    await one.replica.runOnce()
    expect(await one.schedules.runs('s')).toHaveLength(1)
    await database.db.collection('runs').updateMany({}, past(110_000))
    await one.replica.runOnce()
    expect(await one.schedules.runs('s')).toHaveLength(0)
  })

  test('while the lock server is away nothing runs; when it is back the schedule goes on', async () => {
    const ran: unknown[] = []
    const locks = mongoLockProvider(database.db)
    let down = true
    const provider = {
      kind: 'mongodb',
      lock: async (config: never) => {
        if (!down) return locks.lock(config)
        throw new LockProviderUnavailable('mongodb', 'lock', new Error('connection refused'))
      },
    }
    const one = scheduler(database.db, { locks: provider, tasks: { work: async () => void ran.push(1) } })
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    const [run] = await one.schedules.runs('s')
    expect(run).toMatchObject({
      phase: 'Queued',
      progress: { waitingFor: expect.stringContaining('connection refused') },
    })
    expect(ran).toEqual([])
    down = false
    await passForRuns(database.db, 2_000)
    await one.replica.runOnce()
    expect(ran).toEqual([1])
    expect(await one.schedules.runs('s')).toMatchObject([{ phase: 'Completed' }])
  })
})
