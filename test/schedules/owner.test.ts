import { describe, expect, test } from '@jest/globals'
import type { Collection, Db } from 'mongodb'
import { InvalidSchedule, InvalidTask, NoSuchSchedule, Schedules } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'
import { dueSince, useSchedulers } from './support.js'

const raw = (db: Db): Collection<any> => db.collection('schedules')
const HOUR_MS = 3_600_000

const BAD: readonly (readonly [unknown, string])[] = [
  [{ task: 'work', cron: '0 25 * * *' }, 'cron: "0 25 * * *": hour: expected 0-23'],
  [{ task: 'work', cron: '0 5 * * *', timezone: 'Mars/Olympus' }, 'timezone: expected the name of an IANA time zone'],
  [{ task: 'work', interval: '5s', timezone: 'Mars/Olympus' }, 'timezone: expected the name of an IANA time zone'],
  [
    { task: 'work', interval: '5s', startAt: '2026-02-01T00:00:00Z', endAt: '2026-01-01T00:00:00Z' },
    'endAt: expected a time after startAt (2026-02-01T00:00:00.000Z), got 2026-01-01T00:00:00.000Z',
  ],
  [{ task: 'wrok', cron: '@daily' }, "task: expected one of those that are registered (work), got 'wrok'"],
  [{ task: async function sync() {}, cron: '@daily' }, "got a function (sync); a function can't be stored"],
  [{ task: 'work', cron: '@daily', args: { when: new Date(0) } }, 'args.when: expected JSON'],
  [{ task: 'work', cron: '@daily', args: { list: [1, { call: () => 1 }] } }, 'args.list.1.call: expected JSON'],
  [{ task: 'work', cron: '@daily', args: { n: Number.NaN } }, 'args.n: expected JSON'],
  [
    { task: 'work', cron: '@daily', args: undefined, jitter: '-1s' },
    "jitter: expected a duration such as '5m', 0 or more",
  ],
  [{ task: 'work', interval: '0s' }, "interval: expected a duration such as '5m', more than 0"],
  [{ task: 'work', interval: -5 }, 'more than 0 and at most 10 years, got -5'],
  [
    { task: 'work', interval: 300 },
    "interval: expected a duration with its unit, such as '5m', got 300; 300 seconds are '300s'",
  ],
  [{ task: 'work', cron: '@daily', jitter: 0 }, "jitter: expected a duration with its unit, such as '5m', got 0"],
  [{ task: 'work', cron: '@daily', retry: { backOff: 10 } }, 'retry.backOff: expected a duration with its unit'],
  [{ task: 'work', cron: '@daily', retry: { longest: 10 } }, 'retry.longest: expected a duration with its unit'],
  [{ task: 'work', interval: '5 minutes' }, 'got "5 minutes"'],
  [{ task: 'work', cron: '@daily', misfireGraceTime: '-1s' }, 'misfireGraceTime: expected a duration'],
  [{ task: 'work', cron: '@daily', timeout: '0s' }, 'timeout: expected a duration'],
  [{ task: 'work', cron: '@daily', maxInstances: 0 }, 'maxInstances: expected a whole number from 1 to 100, got 0'],
  [{ task: 'work', cron: '@daily', retry: { attempts: 0 } }, 'retry.attempts: expected a whole number from 1 to 100'],
  [{ task: 'work', cron: '@daily', retry: { tries: 3 } }, "retry: unknown field 'tries'"],
  [
    { task: 'work', at: 'tomorrow' },
    'at: expected a date, or a string such as \'2026-11-21T06:00:00Z\', got "tomorrow"',
  ],
  [{ task: 'work', at: '2026-11-21T06:00:00' }, 'at: expected a date'],
  [{ task: 'work' }, 'expected one of cron, interval and at, got none'],
  [{ task: 'work', cron: '@daily', interval: '5s' }, 'expected one of cron, interval and at, got cron and interval'],
  [
    { task: 'work', cron: '@daily', misfire_grace_time: 5 },
    "unknown field 'misfire_grace_time' (did you mean 'misfireGraceTime'?); known: task, args",
  ],
  [{ task: 'work', interval: '60s', timeout: '48h' }, 'timeout: expected at most 23 h for one try, got "48h"'],
  [{ task: 'work', cron: '0 25 * * *', timezone: 'Mars' }, 'cron: "0 25 * * *": hour: expected 0-23'],
  [null, 'expected { task, cron, ... }, got null'],
]

describe('what an owner does', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  test('upsert replaces what exists, keeps its pause and its runs, and the same again changes nothing', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    const { schedules, replica } = one
    const first = { task: 'work', cron: '0 0 1 1 *', jitter: '5s', args: { a: 1 } } as const
    expect(await schedules.upsert('s', first)).toBe('created')
    await replica.runOnce()
    const planned = await schedules.get('s')
    expect(await schedules.upsert('s', first)).toBe('unchanged')
    expect(await schedules.get('s')).toEqual(planned)
    await schedules.pause('s', { by: 'anna', reason: 'moving' })
    await replica.runOnce()
    expect(await schedules.upsert('s', { task: 'work', interval: '5m' }, { by: 'deploy' })).toBe('replaced')
    await replica.runOnce()
    const paused = (await schedules.get('s'))!
    expect(paused).toMatchObject({ phase: 'Paused', interval: '5m', paused: { by: 'anna', reason: 'moving' } })
    for (const gone of ['cron', 'jitter', 'args']) expect(paused).not.toHaveProperty(gone)
    expect(paused.edits!.at(-1)).toMatchObject({ action: 'upsert', by: 'deploy', changes: { jitter: { from: '5s' } } })
    await schedules.resume('s', { by: 'anna' })
    await replica.runOnce()
    expect(await schedules.get('s')).toMatchObject({ phase: 'Active', nextRunAt: expect.any(Date) })
    expect((await schedules.get('s'))!.edits!.map((edit) => [edit.action, edit.by])).toEqual([
      ['created', undefined],
      ['pause', 'anna'],
      ['upsert', 'deploy'],
      ['resume', 'anna'],
    ])
  })

  test('a pause ends by itself; all are paused and resumed at once', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    const { schedules, replica } = one
    for (const id of ['a', 'b']) await schedules.upsert(id, { task: 'work', interval: '3600s' })
    await replica.runOnce()
    const { nextRunAt } = (await schedules.get('a'))!
    await schedules.pause('a', { until: new Date(nextRunAt!.getTime() + HOUR_MS / 2) })
    await replica.runOnce()
    expect(await schedules.get('a')).toMatchObject({ phase: 'Paused', nextRunAt: null })
    await raw(database.db).updateOne({ _id: 'a' }, [
      {
        $set: {
          'paused.until': { $subtract: ['$paused.until', 2 * HOUR_MS] },
          lockedAt: { $subtract: ['$lockedAt', 2 * HOUR_MS] },
        },
      },
    ])
    await replica.runOnce()
    expect(await schedules.get('a')).toMatchObject({ phase: 'Active', paused: null })
    expect(await schedules.pauseAll({ reason: 'incident 7', by: 'anna' })).toBe(2)
    for (const id of ['a', 'b']) await dueSince(database.db, id, 1_000)
    await replica.runOnce()
    expect(await schedules.list()).toMatchObject([{ phase: 'Paused' }, { phase: 'Paused' }])
    expect(await schedules.runs('a')).toMatchObject([
      { phase: 'Skipped', reason: 'the schedule was paused: incident 7' },
    ])
    expect(await schedules.resumeAll({ by: 'anna' })).toBe(2)
    await replica.runOnce()
    expect(await schedules.list()).toMatchObject([{ phase: 'Active' }, { phase: 'Active' }])
  })

  test('statistics: rate, durations, failures by error and hour, counters by day', async () => {
    const { schedules } = scheduler(database.db)
    const at = (day: number, hour: number) => new Date(Date.UTC(2026, 10, day, hour))
    const run = (day: number, hour: number, more: object) => ({
      _id: `s@${at(day, hour).toISOString()}` as never,
      schedule: 's',
      scheduledFor: at(day, hour),
      ...more,
    })
    const completed = (day: number, hour: number, durationMs: number, files: number) =>
      run(day, hour, { phase: 'Completed', durationMs, counters: { files } })
    await database.db
      .collection('runs')
      .insertMany([
        ...Array.from({ length: 19 }, (_, i) => completed(1, i, 100 + i, 1)),
        completed(2, 0, 1_000, 5),
        run(2, 3, { phase: 'Failed', error: { name: 'TypeError' }, lost: 2 }),
        run(2, 4, { phase: 'Failed', error: { name: 'TypeError' } }),
        run(3, 3, { phase: 'Failed', error: { name: 'RangeError' } }),
        run(3, 5, { phase: 'Skipped' }),
        run(3, 6, { phase: 'Running', startedAt: at(3, 6), by: 'pod-1', attempt: 2 }),
        { ...completed(1, 1, 99_999, 1), _id: 'other' as never, schedule: 'other' },
      ])
    expect(await schedules.statistics('s')).toEqual({
      ...{ lastSuccessAt: null, lastSuccess: null, lastFailure: null },
      runs: 25,
      byOutcome: { Completed: 20, Failed: 3, Skipped: 1, Missed: 0 },
      isPart: false,
      open: 1,
      running: [{ run: `s@${at(3, 6).toISOString()}`, schedule: 's', startedAt: at(3, 6), by: 'pod-1', attempt: 2 }],
      successRate: 20 / 23,
      meanMs: 154,
      p95Ms: 118,
      lost: 2,
      failuresByError: [
        { error: 'TypeError', count: 2, last: at(2, 4) },
        { error: 'RangeError', count: 1, last: at(3, 3) },
      ],
      failuresBySchedule: [{ schedule: 's', count: 3, last: at(3, 3) }],
      failuresByHour: Array.from({ length: 24 }, (_, hour) => (hour === 3 ? 2 : hour === 4 ? 1 : 0)),
      trend: [
        { day: '2026-11-01', runs: 19, counters: { files: 19 } },
        { day: '2026-11-02', runs: 1, counters: { files: 5 } },
      ],
    })
    const since = await schedules.statistics('s', { since: at(3, 0), timezone: 'Asia/Seoul' })
    expect(since).toMatchObject({ runs: 3, successRate: 0, meanMs: null, p95Ms: null, trend: [] })
    expect(since.failuresByHour[12]).toBe(1)
    expect(await schedules.statistics('none')).toMatchObject({ runs: 0, successRate: null })
    await expect(schedules.statistics('s', { timezone: 'Mars' })).rejects.toThrow(
      'timezone: expected the name of an IANA',
    )
    // Whatever somebody made of a run, the others count.
    const odd = { schedule: 's', counters: 'none', scheduledFor: 'today', durationMs: 'long', error: 'no' }
    const oddRuns = ['Completed', 'Failed'].map((phase) => ({ ...odd, _id: `odd ${phase}` as never, phase }))
    await database.db.collection('runs').insertMany([...oddRuns, { _id: 'bare' as never, schedule: 's' }])
    expect(await schedules.statistics('s')).toMatchObject({
      runs: 28,
      open: 2,
      meanMs: 154,
      byOutcome: { Completed: 21 },
    })
  })

  test.each([
    ['NUL', 'a\0b'],
    ['half a character', 'a\ud800b'],
    ['201 characters', 'x'.repeat(201)],
  ])('an id with %s is refused, and why is said', async (_what, id) => {
    const { schedules } = scheduler(database.db)
    const problem = 'id: expected a string of 1 to 200 characters, none of them NUL or half a character'
    await expect(schedules.upsert(id, { task: 'work', interval: '1h' })).rejects.toThrow(problem)
  })

  test.each(BAD.map(([given, message]) => [message, given] as const))('refused: %s', async (message, given) => {
    const schedules = new Schedules({ db: database.db, tasks: { work: async () => 1 } })
    const upsert = schedules.upsert('s', given as never)
    await expect(upsert).rejects.toThrow(InvalidSchedule)
    await expect(upsert).rejects.toThrow(message)
    expect(await schedules.get('s')).toBeNull()
  })

  test('what is not there, and options that can not be used', async () => {
    const schedules = new Schedules({ db: database.db })
    await expect(schedules.pause('none')).rejects.toThrow(NoSuchSchedule)
    await expect(schedules.resume('none')).rejects.toThrow(NoSuchSchedule)
    await expect(schedules.run('none')).rejects.toThrow("there is no schedule 'none'")
    expect(await schedules.remove('none')).toBe(false)
    await schedules.upsert('there', { task: 'a', cron: '@daily' })
    await expect(schedules.pause('there', { until: new Date(0) })).rejects.toThrow(
      "schedule 'there' can't run: until: expected a time in the future, got 1970-01-01T00:00:00.000Z",
    )
    expect(await schedules.pauseAll({ until: new Date(0) })).toBe(0)
    await expect(schedules.upsert('', { task: 'a', cron: '@daily' })).rejects.toThrow('id: expected a string')
    const { db } = database
    expect(() => new Schedules({ db, lockTimeout: '0s' })).toThrow(
      "lockTimeout: expected a duration from 1s to 24h, such as '30s', '5m' or '2h', got '0s'",
    )
    expect(() => new Schedules({ db, taks: {} } as never)).toThrow(
      "unknown option 'taks' (did you mean 'tasks'?); known: db, tasks",
    )
    expect(() => new Schedules({ db, context: { db } as never })).toThrow(
      'context: expected a function that returns it, such as () => ({ db }), got an object with db',
    )
    expect(() => new Schedules({ db, locks: 'redis' as never })).toThrow('locks: expected a lock provider')
    expect(() => new Schedules({ db, tasks: { 'a b': async () => 1 } })).toThrow(InvalidTask)
    expect(() => new Schedules({ db, tasks: { a: 5 as never } })).toThrow("task 'a': expected a function, or { run,")
    expect(() => new Schedules({ db, tasks: { a: { run: () => 1, onSucces: () => 1 } as never } })).toThrow(
      'unknown onSucces',
    )
    expect(() => new Schedules({ db, tasks: { a: () => 1 } }).register('a', () => 2)).toThrow('is already registered')
  })
})
