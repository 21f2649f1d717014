import { describe, expect, jest, test } from '@jest/globals'
import { useSchedulers } from '../schedules/support.js'
import { useDatabase } from '../support/database.js'
import { gate } from '../support/thing.js'
import { useCliFolder } from './cli-process.js'

jest.setTimeout(240_000)

describe('the commands on schedules', () => {
  const database = useDatabase()
  const folder = useCliFolder()
  const scheduler = useSchedulers()
  const run = (...args: string[]) => folder().run(args, { MONGODB_URI: database.uri })

  test('set, list, run, runs, pause, resume, remove', async () => {
    const end = gate()
    const { schedules, replica } = scheduler(database.db, {
      name: 'pod-1',
      tasks: {
        sync: async (args: { fail?: boolean; full?: boolean }, task) => {
          if (args.full) await end.wait
          if (args.fail) throw new Error('no such repository')
          task.log('listing files')
          task.count('filesProcessed', 7)
        },
      },
    })
    expect(await run('schedules')).toMatchObject({ code: 0, out: 'no schedules\n', err: '' })
    const fields = '{"task":"sync","cron":"0 0 1 1 *","timezone":"Asia/Seoul"}'
    expect(await run('schedules', 'set', 'repo_42', fields, '--by', 'anna')).toMatchObject({
      code: 0,
      out: 'repo_42 created\n',
    })
    await database.db
      .collection<{ _id: string }>('schedules')
      .insertOne({ _id: 'wrong', phase: 'Active', task: 'sync', cron: '0 25 * * *' } as never)
    await replica.runOnce()

    const waiting = folder().phaselock(['run', 'repo_42', '--wait', '--by', 'anna'], { MONGODB_URI: database.uri })
    await replica.start()
    expect(await waiting.exited).toBe(0)
    expect(waiting.out).toMatch(/^repo_42@\S+Z Completed in .+\n$/)
    const failed = await run('run', 'repo_42', '--args', '{"fail":true}', '--wait', '--json')
    expect(failed.code).toBe(4)
    expect(failed.json()).toMatchObject({
      phase: 'Failed',
      trigger: 'manual',
      error: { message: 'no such repository' },
    })

    const list = await run('schedules')
    expect(list.out.split('\n')[0]).toMatch(/^ID +TASK +WHEN +PHASE +NEXT RUN +LAST RUN +ENDED$/)
    expect(list.out).toMatch(
      /^repo_42 +sync +0 0 1 1 \* Asia\/Seoul +Active +in \d+ \w+ .* Failed in .*: no such repository$/m,
    )
    expect(list.out).toMatch(/^wrong +sync +0 25 \* \* \* +Broken +- +- +-$/m)
    expect(list.out).toContain('wrong is broken: cron: "0 25 * * *": hour: expected 0-23')
    expect((await run('schedules', '--phase', 'Broken', '--json')).json()).toMatchObject([{ _id: 'wrong' }])

    const runs = await run('runs', 'repo_42', '--lines')
    expect(runs.out).toMatch(/^DUE +TRIGGER +TRY +BY +ENDED$/m)
    expect(runs.out).toMatch(/manual \(anna\) +1 +pod-1 +Completed in .* \(filesProcessed 7\)$/m)
    expect(runs.out).toContain(
      ' listing files\n2 runs: Completed 1, Failed 1, Skipped 0, Missed 0, open 0\nsuccess rate 50.0 %\n',
    )
    expect(runs.out).toContain('failed 1 time: Error, last ')

    const until = ['--until', '2999-01-01T00:00:00Z', '--reason', 'it is moving', '--by', 'anna']
    expect(await run('schedules', 'pause', 'repo_42', ...until)).toMatchObject({ code: 0, out: 'repo_42 paused\n' })
    expect((await run('schedules')).out).toContain(
      'repo_42 is paused until 2999-01-01T00:00:00Z by anna: it is moving\n',
    )
    const mine = ['schedules', 'pause', 'repo_42', '--by', 'ben']
    expect((await run(...mine)).out).toBe(
      'repo_42 paused; also paused until 2999-01-01T00:00:00Z by anna: it is moving\n',
    )
    expect((await run('schedules')).out).toContain('repo_42 is paused by ben\n')
    expect(await run('schedules', 'resume', 'repo_42', '--by', 'carl')).toMatchObject({
      code: 4,
      err: expect.stringContaining("schedule 'repo_42' is paused by anna, ben: none of these pauses is yours"),
    })
    expect((await run('schedules', 'resume', 'repo_42', '--of', 'ben')).out).toBe(
      'repo_42 resumed; still paused until 2999-01-01T00:00:00Z by anna: it is moving\n',
    )
    expect(await run('schedules', 'resume', '--all', '--json')).toMatchObject({ code: 0, out: '{"resumed":1}\n' })
    expect((await schedules.get('repo_42'))!.edits!.map((edit) => [edit.action, edit.by])).toMatchObject([
      ['created', 'anna'],
      ['pause', 'anna'],
      ['pause', 'ben'],
      ['resume', expect.any(String)],
      ['resume', expect.any(String)],
    ])
    const range = ['--from', '2026-01-01T00:00:00Z', '--to', '2026-01-01T03:00:00Z', '--args', '{"full":true}']
    expect((await run('backfills')).out).toBe('no backfills; to begin one: phaselock backfills run\n')
    expect(await run('backfills', 'show', 'hourly')).toMatchObject({ code: 3 })
    await schedules.upsert('hourly', { task: 'sync', cron: '0 * * * *' })
    expect(await run('backfills', 'run', 'hourly', '--from', '2999-01-01T00:00:00Z', '--dry-run')).toMatchObject({
      ...{ code: 2, err: expect.stringContaining('from: expected a time before') },
    })
    expect((await run('backfills', 'run', 'hourly', ...range, '--dry-run')).out).toBe(
      'run 4 of 4 due times of hourly\nthe first: 2026-01-01T00:00:00Z, the last: 2026-01-01T03:00:00Z\nnothing was changed\n',
    )
    expect(await run('backfills', 'run', 'hourly', ...range)).toMatchObject({
      code: 2,
      err: 'phaselock: expected yes, or --yes, to run 4 of 4 due times of hourly; nothing was changed\n',
    })
    const yes = ['--yes', '--by', 'anna', '--reason', 'it was down']
    expect((await run('backfills', 'run', 'hourly', ...range, ...yes)).out).toBe(
      'hourly: 4 runs are to come; see: phaselock backfills\n',
    )
    expect(await run('backfills', 'run', 'hourly', ...range, '--yes')).toMatchObject({
      code: 4,
      err: expect.stringContaining("backfill of 'hourly': there is one already"),
    })
    end.open()
    while ((await schedules.backfillState('hourly'))!.condition !== 'Done') await replica.runOnce()
    const shown = (await run('backfills', 'show', 'hourly')).out
    expect(shown).toMatch(/^hourly: Done; 4 of 4 runs are over\n {2}due times from 2026-01-01T00:00:00Z to /)
    expect(shown).toMatch(/^ {2}Completed 4\n {2}begun \S+ by anna: it was down\n$/m)
    expect((await run('backfills')).out).toMatch(/^hourly .* Done +4 of 4 +- +- +\S+ +- +anna$/m)
    expect(await run('backfills', 'abort', 'hourly')).toMatchObject({
      code: 4,
      err: expect.stringContaining('it is Done'),
    })
    expect((await run('audit', '--json')).json()).toEqual(
      expect.arrayContaining([expect.objectContaining({ action: 'backfills run', why: 'it was down' })]),
    )
    expect(await run('schedules', 'remove', 'wrong')).toMatchObject({ code: 0, out: 'wrong removed\n' })
  })

  test('schedules and runs of other collections, by flags or the environment; their names are in the help', async () => {
    const collections = { schedules: 'jobs', runs: 'jobRuns' }
    const { schedules, replica } = scheduler(database.db, { collections, tasks: { sync: async () => 1 } })
    const flags = ['--schedules-collection', 'jobs', '--runs-collection', 'jobRuns']
    const fields = '{"task":"sync","cron":"0 0 1 1 *"}'
    expect(await run('schedules', 'set', 'job', fields, ...flags)).toMatchObject({ code: 0, out: 'job created\n' })
    expect((await run('run', 'job', ...flags)).out).toMatch(/^job@\S+Z is queued; /)
    await replica.runOnce()
    await replica.runOnce()
    expect(await schedules.runs('job')).toMatchObject([{ phase: 'Completed', trigger: 'manual' }])
    const env = {
      MONGODB_URI: database.uri,
      PHASELOCK_SCHEDULES_COLLECTION: 'jobs',
      PHASELOCK_RUNS_COLLECTION: 'jobRuns',
    }
    expect((await folder().run(['runs', 'job'], env)).out).toContain('\n1 run: Completed 1,')
    expect((await folder().run(['schedules', 'pause', '--all'], env)).out).toBe('1 schedule paused\n')
    expect((await schedules.get('job'))!.paused).toMatchObject({ at: expect.any(Date) })
    expect((await run('schedules', 'resume', 'job')).code).toBe(3)
    expect(await run('runs', 'job', '--schedules-collection', 'runs')).toMatchObject({
      code: 2,
      err: "phaselock: --schedules-collection and --runs-collection: expected two names, got 'runs' twice\n",
    })
    const help = (await run('schedules', 'resume', '--help')).out
    for (const flag of ['--schedules-collection <name>', '--runs-collection <name>']) expect(help).toContain(flag)
  })

  test('a run that is asked for rings before the command ends, unless it is told not to', async () => {
    const doorbell = await database.db.createCollection('phaselock.doorbell', { capped: true, size: 65_536 })
    await doorbell.insertOne({ lifecycles: [] })
    await run('schedules', 'set', 's', '{"task":"sync","cron":"0 0 1 1 *"}')
    expect(await run('run', 's', '--doorbell', 'off')).toMatchObject({ code: 0 })
    expect(await doorbell.countDocuments({ by: { $exists: true } })).toBe(0)
    expect(await run('run', 's')).toMatchObject({ code: 0 })
    expect(await doorbell.findOne({ by: { $exists: true } })).toMatchObject({
      lifecycles: ['schedules.runs'],
      phases: ['Queued'],
      ids: [expect.stringMatching(/^s@/)],
    })
  })

  test('runs --statistics: of a task, a prefix, all, or one schedule', async () => {
    const at = (hour: number) => new Date(Date.UTC(2026, 10, 1, hour))
    const one = (schedule: string, hour: number, phase: string, more: object = {}) => ({
      ...{ _id: `${schedule}@${hour}` as never, schedule, task: 'sync', phase, scheduledFor: at(hour), ...more },
    })
    const error = { name: 'Unavailable', message: 'GitLab 503' }
    await database.db
      .collection('runs')
      .insertMany([
        one('repo_1', 1, 'Completed', { durationMs: 1_000, counters: { files: 7 } }),
        one('repo_2', 2, 'Failed', { error }),
        one('repo_2', 3, 'Failed', { error }),
        one('repo_1', 4, 'Running', { startedAt: at(4), by: 'pod-1' }),
        one('tidy', 5, 'Completed', { task: 'tidy' }),
      ])
    const found = await run('runs', '--statistics', '--task', 'sync')
    expect(found).toMatchObject({ code: 0, err: '' })
    expect(found.out).toBe(`4 runs: Completed 1, Failed 2, Skipped 0, Missed 0, open 1
success rate 33.3 %
took 1 s on average, p95 1 s
running now: repo_1@4 on pod-1, since 2026-11-01T04:00:00Z
failed 2 times: Unavailable, last 2026-11-01T03:00:00Z
repo_2 failed 2 times, last 2026-11-01T03:00:00Z
failures by hour: 02h 1, 03h 1
2026-11-01: 1 Completed, files 7
`)
    expect((await run('runs', '--statistics', '--all', '--json')).json()).toMatchObject({
      statistics: { runs: 5, isPart: false, failuresBySchedule: [{ schedule: 'repo_2', count: 2 }] },
    })
    const since = ['--since', '2026-11-01T03:00:00Z']
    expect((await run('runs', '--statistics', '--prefix', 'repo_', ...since)).out).toMatch(/^2 runs: /)
    expect((await run('runs', 'tidy', '--statistics')).out).toMatch(/^1 run: /)
    for (const [args, code, problem] of [
      [['--statistics'], 2, 'expected one of <schedule>, --task, --prefix and --all, got none'],
      [['--statistics', 'tidy', '--all'], 2, 'got <schedule> and --all'],
      [['--statistics', 'tidy', '--limit', '3'], 2, '--limit is for the list of runs'],
      [['tidy', '--all'], 2, '--all: expected --statistics too'],
      [[], 2, 'expected the id of a schedule, or --statistics with'],
      [['none', '--statistics'], 3, "there is no schedule 'none'"],
    ] as const) {
      const refused = await run('runs', ...args)
      expect({ args, code: refused.code }).toEqual({ args, code })
      expect(refused.err).toContain(problem)
    }
  })

  test('what can not be done says so', async () => {
    const bad = await run('schedules', 'set', 's', '{"task":"sync","cron":"61 * * * *"}')
    expect(bad.code).toBe(2)
    expect(bad.err).toMatch(/^phaselock: schedule 's' can't run: cron: "61 \* \* \* \*": minute: expected 0-59/)
    for (const args of [
      ['run', 'none'],
      ['runs', 'none'],
      ['schedules', 'pause', 'none'],
    ]) {
      expect(await run(...args)).toMatchObject({
        code: 3,
        err: "phaselock: there is no schedule 'none'; see: phaselock schedules\n",
      })
    }
    expect((await run('schedules', 'pause')).err).toContain('expected a schedule or --all')
    expect((await run('schedules', 'pause', 's', '--until', 'tomorrow')).code).toBe(2)
  })
})
