import { describe, expect, test } from '@jest/globals'
import { useDatabase } from '../support/database.js'
import { dueSchedule, dueSince, useSchedulers } from './support.js'

describe('the last ends of a schedule', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  test('are in its document: which run was last Completed, which has last Failed', async () => {
    let fails = false
    const work = async () => {
      if (fails) throw new RangeError('no files')
    }
    const one = scheduler(database.db, { tasks: { work } })
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    const [run] = await one.schedules.runs('s')
    const success = {
      run: run!._id,
      at: run!.completedAt,
      scheduledFor: run!.scheduledFor,
      durationMs: run!.durationMs,
    }
    expect(await one.schedules.get('s')).toMatchObject({ lastSuccessAt: run!.completedAt, lastSuccess: success })
    fails = true
    await dueSince(database.db, 's', 500)
    await one.replica.runOnce()
    const [failed] = await one.schedules.runs('s')
    const after = await one.schedules.get('s')
    const failure = { run: failed!._id, at: failed!.completedAt, error: { name: 'RangeError', message: 'no files' } }
    // lastRunAt is when it was last due, however that ended.
    expect(after).toMatchObject({ lastSuccess: success, lastFailure: failure, lastRunAt: failed!.scheduledFor })
    expect(await one.schedules.statistics('s')).toMatchObject({
      ...{ lastSuccessAt: run!.completedAt, lastSuccess: { run: run!._id }, lastFailure: { run: failed!._id } },
    })
    expect((await one.schedules.get('s'))!.warnings ?? null).toBeNull()
  })

  test('are those that ended last, whichever is written last', async () => {
    const one = scheduler(database.db, { tasks: { work: { run: async () => 1, onSuccess: () => undefined } } })
    const due = await dueSchedule(one, database.db)
    await one.replica.runOnce()
    const before = await one.schedules.get('s')
    const runs = database.db.collection<{ _id: string }>('runs')
    // A replica died before it had called back, long ago.
    const old = { phase: 'Queued', outcome: 'Completed', completedAt: new Date(5_000), lockedAt: new Date(0) }
    await runs.updateOne({ _id: `s@${due.toISOString()}` }, { $set: old })
    await one.replica.runOnce()
    expect((await one.schedules.runs('s'))[0]).toMatchObject({ phase: 'Completed' })
    expect((await one.schedules.get('s'))!.lastSuccess).toEqual(before!.lastSuccess)
  })

  test('and statistics are of one schedule, of a task, of ids with a prefix, or of all', async () => {
    const { schedules } = scheduler(database.db)
    const run = (schedule: string, task: string, phase: string, second: number) => ({
      ...{ _id: `${schedule}@${second}` as never, schedule, task, phase, durationMs: 10 },
      ...{ scheduledFor: new Date(second * 1_000), completedAt: new Date(second * 1_000 + 10) },
    })
    await database.db
      .collection('runs')
      .insertMany([
        run('sync_a', 'sync', 'Completed', 1),
        run('sync_b', 'sync', 'Failed', 2),
        run('sync_b', 'sync', 'Completed', 3),
        run('sync', 'tidy', 'Completed', 4),
        run('tidy', 'tidy', 'Failed', 5),
      ])
    const shown = async (which: Parameters<typeof schedules.statistics>[0]) => {
      const { runs, successRate, lastSuccess, lastFailure } = await schedules.statistics(which)
      return [runs, successRate, lastSuccess?.run, lastFailure?.run]
    }
    expect(await shown('sync')).toEqual([1, 1, 'sync@4', undefined])
    expect(await shown({ task: 'sync' })).toEqual([3, 2 / 3, 'sync_b@3', 'sync_b@2'])
    expect(await shown({ prefix: 'sync_' })).toEqual([3, 2 / 3, 'sync_b@3', 'sync_b@2'])
    expect(await shown({ prefix: 'sync' })).toEqual([4, 3 / 4, 'sync@4', 'sync_b@2'])
    expect(await shown({ all: true })).toEqual([5, 3 / 5, 'sync@4', 'tidy@5'])
    const since = await schedules.statistics({ all: true }, { since: new Date(3_000) })
    expect(since).toMatchObject({ runs: 3, failuresByError: [{ count: 1 }] })
    for (const wrong of [
      {},
      { all: false },
      { task: 'a', prefix: 'b' },
      { task: { $ne: '' } },
      { prefix: '' },
      { taks: 'a' },
      5,
    ])
      await expect(schedules.statistics(wrong as never)).rejects.toMatchObject({ name: 'InvalidOptions' })
  })

  test('statistics of several schedules: which of them fail, what runs now, and whether they are a part', async () => {
    const { schedules } = scheduler(database.db)
    const at = (minute: number) => new Date(Date.UTC(2026, 10, 1, 0, minute))
    const run = (schedule: string, minute: number, phase: string, more: object = {}) => ({
      ...{ _id: `${schedule}@${minute}` as never, schedule, task: 'sync', phase, scheduledFor: at(minute), ...more },
    })
    const running = (schedule: string, minute: number) => ({
      ...{ startedAt: at(minute), by: 'pod-1', attempt: 1, args: 'large', run: `${schedule}@${minute}` },
    })
    await database.db
      .collection('runs')
      .insertMany([
        run('a', 1, 'Running', running('a', 1)),
        ...[2, 3].map((minute) => run('a', minute, 'Failed')),
        ...[4, 5, 6].map((minute) => run('b', minute, 'Failed')),
        ...[7, 8].map((minute) => run('c', minute, 'Completed')),
        run('c', 9, 'Running', running('c', 9)),
        ...Array.from({ length: 25 }, (_, i) => run(`d${i}`, 10, 'Failed', { task: 'other' })),
      ])
    const all = await schedules.statistics({ task: 'sync' })
    expect(all).toMatchObject({ runs: 9, open: 2, isPart: false })
    expect(all.failuresBySchedule).toEqual([
      { schedule: 'b', count: 3, last: at(6) },
      { schedule: 'a', count: 2, last: at(3) },
    ])
    const shown = (schedule: string, minute: number) => {
      const { args, ...kept } = { schedule, ...running(schedule, minute) }
      return kept
    }
    expect(all.running).toEqual([shown('c', 9), shown('a', 1)])
    expect((await schedules.statistics({ task: 'other' })).failuresBySchedule).toHaveLength(20)

    // What runs now is no matter of when it was due, nor of how many are counted.
    const latest = await schedules.statistics({ task: 'sync' }, { since: at(2), limit: 3 })
    expect(latest).toMatchObject({ runs: 3, isPart: true, open: 1, failuresBySchedule: [], running: all.running })
    expect(await schedules.statistics({ task: 'sync' }, { since: at(7), limit: 3 })).toMatchObject({ isPart: false })
    expect(await schedules.statistics('b', { limit: 2 })).toMatchObject({ runs: 2, isPart: true, running: [] })
    for (const limit of [0, 1.5, 100_001])
      await expect(schedules.statistics('b', { limit })).rejects.toMatchObject({ name: 'InvalidOptions' })
  })
})
