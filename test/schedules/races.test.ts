import { describe, expect, test } from '@jest/globals'
import type { Collection } from 'mongodb'
import { mongoLockProvider } from '../../src/locks/index.js'
import { decide } from '../../src/schedules/decide.js'
import { readSchedule } from '../../src/schedules/definition/read-schedule.js'
import { dueTimes, MOST_DUE } from '../../src/schedules/due.js'
import { noticeEdits } from '../../src/schedules/edit-watch.js'
import { Schedules } from '../../src/schedules/index.js'
import { lockNameOf } from '../../src/schedules/run-lock.js'
import { MOST_WAITING } from '../../src/schedules/schedule-lifecycle.js'
import { eventually, useDatabase } from '../support/database.js'
import { amidRebuild } from '../support/index-rebuild.js'
import { gate } from '../support/thing.js'
import { dueSchedule, dueSince, passForRuns, useSchedulers } from './support.js'

const PATIENTLY = { timeoutMs: 60_000 }

describe('edits that meet', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()
  const raw = (): Collection<any> => database.db.collection('schedules')

  test('replicas that start together and declare one schedule: one makes it, and nobody fails', async () => {
    const fields = { task: 'work', cron: '0 0 1 1 *', args: { n: 1 }, jitter: '500ms' } as const
    const done = await Promise.all(
      Array.from({ length: 12 }, () => new Schedules({ db: database.db }).upsert('s', fields, { by: 'code' })),
    )
    expect(done.filter((one) => one === 'created')).toHaveLength(1)
    expect(done.filter((one) => one === 'unchanged')).toHaveLength(11)
    expect((await raw().findOne({ _id: 's' })).edits).toHaveLength(1)
  })

  test('of two edits at the same time neither leaves its fields in the other', async () => {
    const { schedules } = scheduler(database.db)
    await schedules.upsert('s', { task: 'work', at: '2999-01-01T00:00:00Z' })
    for (let i = 1; i <= 10; i += 1) {
      await Promise.all([
        schedules.upsert('s', { task: 'work', cron: `${i} 0 1 1 *`, timezone: 'Asia/Seoul' }),
        schedules.upsert('s', { task: 'work', interval: `${i * 60}s` }),
      ])
      const stored = await raw().findOne({ _id: 's' })
      expect(['cron', 'interval', 'at'].filter((name) => name in stored)).toHaveLength(1)
      expect(stored.known.cron).toBe(stored.cron)
    }
  })

  test('what was resumed, and what has its fields in another order, is not looked at again and again', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    await raw().insertOne({ _id: 's', phase: 'active', coalesce: false, cron: '0 0 1 1 *', task: 'work' })
    await one.schedules.resume('s')
    await one.replica.runOnce()
    expect((await one.schedules.get('s'))!.edits).toMatchObject([{ action: 'resume' }])
    await one.schedules.pause('s')
    await one.replica.runOnce()
    await one.schedules.resume('s')
    await one.replica.runOnce()
    expect(await noticeEdits(raw(), null, 10)).toEqual({ last: 's', seen: 1, noticed: 0 })
    const { known } = (await one.schedules.get('s'))!
    const turned = Object.fromEntries(Object.entries(known!).reverse())
    await raw().updateOne({ _id: 's' }, { $set: { known: turned } })
    expect(await noticeEdits(raw(), null, 10)).toMatchObject({ noticed: 1 })
    await one.replica.runOnce()
    expect(await noticeEdits(raw(), null, 10)).toMatchObject({ noticed: 0 })
  })

  test('a pause that is set, shortened or taken off in the database takes effect', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    await dueSchedule(one, database.db)
    await raw().updateOne({ _id: 's' }, { $set: { paused: true } })
    await one.replica.runOnce()
    expect(await one.schedules.get('s')).toMatchObject({ phase: 'Paused', nextRunAt: null })
    expect(await noticeEdits(raw(), null, 10)).toMatchObject({ noticed: 0 })
    await raw().updateOne({ _id: 's' }, { $unset: { paused: 1 } })
    expect(await noticeEdits(raw(), null, 10)).toMatchObject({ noticed: 1 })
    await one.replica.runOnce()
    expect(await one.schedules.get('s')).toMatchObject({ phase: 'Active', nextRunAt: expect.any(Date) })
    await one.schedules.pause('s', { until: new Date('2999-01-01T00:00:00Z') })
    await one.replica.runOnce()
    expect(await noticeEdits(raw(), null, 10)).toMatchObject({ noticed: 0 })
    await raw().updateOne({ _id: 's' }, { $set: { 'paused.until': new Date(0) } })
    expect(await noticeEdits(raw(), null, 10)).toMatchObject({ noticed: 1 })
    await raw().updateOne({ _id: 's' }, { $set: { paused: true } })
    expect(await one.schedules.resumeAll()).toBe(1)
    await one.replica.runOnce()
    expect(await one.schedules.get('s')).toMatchObject({ phase: 'Active' })
    // It was due when the first pause began.
    expect(await one.schedules.runs('s')).toMatchObject([{ phase: 'Skipped', reason: expect.stringMatching(/paused/) }])
  })
})

describe('runs that meet', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  test('a run that is taken over enters its own place again, though an earlier one is free: none is left to nobody', async () => {
    const [first, second] = [gate(), gate()]
    const begun: string[] = []
    const work = async ({ which }: { which: string }) => {
      begun.push(which)
      await (which === 'first' ? first : second).wait
    }
    const dead = scheduler(database.db, { name: 'dead', tasks: { work } })
    const heir = scheduler(database.db, { name: 'heir', tasks: { work: async () => 1 } })
    const { schedules } = dead
    await schedules.upsert('s', { task: 'work', cron: '0 0 1 1 *', maxInstances: 2 })
    const runs: string[] = []
    const going: Promise<unknown>[] = []
    for (const which of ['first', 'second']) {
      runs.push(await schedules.run('s', { args: { which } }))
      going.push(dead.replica.runOnce().catch(() => undefined))
      await eventually(() => expect(begun.at(-1)).toBe(which), PATIENTLY)
    }
    first.open()
    await eventually(
      async () => expect(await schedules.findRun(runs[0]!)).toMatchObject({ phase: 'Completed' }),
      PATIENTLY,
    )
    await eventually(async () => {
      // Whoever is late may renew its lease in between.
      await passForRuns(database.db, 60_000)
      await heir.replica.runOnce()
      expect(await schedules.findRun(runs[1]!)).toMatchObject({ phase: 'Completed', by: 'heir', lost: 1 })
    }, PATIENTLY)
    const locks = mongoLockProvider(database.db)
    expect((await locks.list({ heldOnly: true })).map(({ name }) => name)).toEqual([])
    second.open()
    await Promise.all(going)
  })

  test('a run that is over before it began leaves no lock that was entered for it: the next one runs', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    const locks = mongoLockProvider(database.db, { name: 'gone' })
    for (const over of ['Missed', 'Skipped']) {
      await dueSchedule(one, database.db, { misfireGraceTime: '60s', maxInstances: 2 }, over)
      const due = await dueSince(database.db, over, over === 'Missed' ? 120_000 : 1_000)
      const run = `${over}@${due.toISOString()}`
      // As after a crash, or an answer that was never heard.
      await locks.lock({ name: `scheduler_lock:${over}#2`, lockAtMostFor: '30m', reentry: run })
      const other = await locks.lock({ name: `scheduler_lock:${over}`, lockAtMostFor: '30m', reentry: 'another run' })
      if (over === 'Skipped') {
        const nobody = scheduler(database.db)
        await nobody.replica.runOnce()
        await database.db
          .collection<{ _id: string }>('schedules')
          .updateOne({ _id: over }, { $set: { isActive: false } })
      }
      await one.replica.runOnce()
      expect(await one.schedules.findRun(run)).toMatchObject({ phase: over })
      expect((await locks.list({ heldOnly: true })).map(({ name }) => name)).toEqual([`scheduler_lock:${over}`])
      await other!.unlock()
    }
  })

  test.each([
    ['', async () => undefined],
    [', while the claim index is rebuilt too', () => amidRebuild(database.db.collection('runs'))],
  ])('runs of a task that nobody knows are bounded, and say why%s', async (_when, before) => {
    const nobody = scheduler(database.db)
    await dueSchedule(nobody, database.db)
    const waiting = Array.from({ length: MOST_WAITING }, (_, i) => ({
      _id: `s@${i}` as never,
      phase: 'Queued',
      schedule: 's',
      task: 'work',
      scheduledFor: new Date(i),
    }))
    await database.db.collection('runs').insertMany(waiting)
    await before()
    await nobody.replica.runOnce()
    const latest = await nobody.schedules.runs('s', { phase: 'Missed' })
    expect(latest).toHaveLength(1)
    expect(latest[0]).toMatchObject({
      outcome: 'Missed',
      reason: `no replica knows the task 'work': ${MOST_WAITING} earlier runs are waiting for one`,
      completedAt: expect.any(Date),
    })
    expect(await database.db.collection('runs').countDocuments({ phase: 'Queued' })).toBe(MOST_WAITING)
    expect(
      nobody.logger.lines.filter((line: unknown) => JSON.stringify(line).includes('no replica knows')),
    ).toHaveLength(1)
  })

  test('a lock has a name that its store takes, whatever the schedule is called', () => {
    expect(lockNameOf('repo_sync_42')).toBe('scheduler_lock:repo_sync_42')
    expect(lockNameOf('repo_sync_42', 2, 'postgres')).toBe('scheduler_lock:repo_sync_42#2')
    expect(lockNameOf('x'.repeat(200))).toBe(`scheduler_lock:${'x'.repeat(200)}`)
    for (const [id, kind] of [
      ['x'.repeat(50), 'postgres'],
      ['x'.repeat(50), 'mysql'],
      ['two\nlines', 'mongodb'],
      ['a space at the end ', 'redis'],
    ] as const) {
      expect(lockNameOf(id, 100, kind)).toMatch(/^scheduler_lock:[0-9a-f]{40}#100$/)
      expect(lockNameOf(id, 100, kind).length).toBeLessThanOrEqual(64)
    }
  })
})

describe('after a very long outage', () => {
  test('many due times long ago, none since: the latest are found without going through all of them', () => {
    const given = { task: 'work', cron: '* * * * * *', endAt: '2026-02-10T00:00:00Z' }
    const read = readSchedule(given)
    if (!('schedule' in read)) throw new Error('it can be read')
    const [first, now] = [new Date('2026-01-01T00:00:00Z'), new Date('2026-03-01T00:00:00Z')]
    const asked: Date[] = []
    const { timing } = read.schedule
    if (timing.kind !== 'cron') throw new Error('it is a cron')
    const counting = { next: (after: Date) => timing.cron.next(asked[asked.push(after) - 1]!) }
    const { times, earlierSince } = dueTimes(
      { ...read.schedule, timing: { kind: 'cron', cron: counting as never } },
      first,
      now,
      first,
    )
    expect(times).toHaveLength(MOST_DUE)
    expect(times.at(-1)).toEqual(new Date('2026-02-10T00:00:00Z'))
    expect(earlierSince).toEqual(first)
    expect(asked.length).toBeLessThan(60_000)
    const decision = decide({ _id: 's', ...given, nextRunAt: first, known: given, createdAt: first } as never, now)
    expect(decision).toMatchObject({ phase: 'Finished', wakeAt: null })
  })
})
