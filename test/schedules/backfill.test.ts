import { describe, expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import { mongoLockProvider } from '../../src/locks/index.js'
import { type BackfillPlace, continueBackfill } from '../../src/schedules/backfill.js'
import type { NewRun } from '../../src/schedules/decide.js'
import type { ScheduleFields } from '../../src/schedules/index.js'
import { lockNameOf } from '../../src/schedules/run-lock.js'
import { useDatabase } from '../support/database.js'
import { gate } from '../support/thing.js'
import { dueSince, HOURLY, passForRuns, type Scheduler, useSchedulers } from './support.js'

const at = (hour: number, day = 1) => new Date(Date.UTC(2026, 0, day, hour))
const RANGE = { from: at(0), to: at(5) }

describe('backfill', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()
  const runs = () => database.db.collection<Document & { _id: string }>('runs')
  const schedules = () => database.db.collection<Document & { _id: string }>('schedules')

  async function prepared(fields: Partial<ScheduleFields> = {}, run?: (due: Date, args: unknown) => Promise<unknown>) {
    const ran: string[] = []
    const work = async (args: unknown, { scheduledFor }: { scheduledFor: Date }) => {
      ran.push(scheduledFor.toISOString().slice(5, 13))
      await run?.(scheduledFor, args)
    }
    const one = scheduler(database.db, { tasks: { work } })
    await one.schedules.upsert('s', { task: 'work', ...HOURLY, ...fields } as ScheduleFields)
    await one.replica.runOnce()
    return { ...one, ran }
  }

  const done = (id: string, phase: string, due: Date) =>
    runs().insertOne({ _id: `s@${due.toISOString()}${id}`, schedule: 's', task: 'work', phase, scheduledFor: due })

  async function toEnd({ schedules: of, replica }: Pick<Scheduler, 'schedules' | 'replica'>, most = 60) {
    for (let i = 0; i < most; i += 1) {
      await replica.runOnce()
      const state = (await of.backfillState('s'))!
      if (state.condition !== 'Running') return state
      await passForRuns(database.db, 2_100)
    }
    throw new Error('it did not end')
  }

  test('runs each due time of the range once, the oldest first, one at a time', async () => {
    let running = 0
    const one = await prepared({}, async () => {
      running += 1
      expect(running).toBe(1)
      await new Promise(setImmediate)
      running -= 1
    })
    expect(await one.schedules.previewBackfill('s', RANGE)).toEqual({
      ...{ runs: 6, dueTimes: 6, first: at(0), last: at(5) },
    })
    const begun = await one.schedules.backfill('s', { ...RANGE, by: 'anna', reason: 'the archive was down' })
    expect(begun).toMatchObject({ runs: 6, concurrency: 1, by: 'anna' })
    expect(await one.schedules.backfillState('s')).toMatchObject({
      condition: 'Running',
      over: 0,
      counts: { Queued: 1 },
    })
    const state = await toEnd(one)
    expect(state).toMatchObject({ condition: 'Done', over: 6, counts: { Completed: 6 } })
    expect(one.ran).toEqual(['01-01T00', '01-01T01', '01-01T02', '01-01T03', '01-01T04', '01-01T05'])
    expect(await runs().findOne({ scheduledFor: at(0) })).toMatchObject({
      ...{ _id: `s@${at(0).toISOString()}`, trigger: 'backfill', requestedBy: 'anna', phase: 'Completed' },
    })
    expect((await one.schedules.get('s'))!.edits!.at(-1)).toMatchObject({ action: 'backfill', by: 'anna' })
    // The lock is free, and there is nothing more to do.
    expect(await mongoLockProvider(database.db).find?.(lockNameOf('s'))).toMatchObject({ held: false })
    await expect(one.schedules.backfill('s', RANGE)).rejects.toThrow(
      "backfill of 's': nothing to run: of 6 due times in the range none is left to run",
    )
  })

  test.each([
    [undefined, ['01-01T00', '01-01T02', '01-01T03']],
    ['failed', ['01-01T00', '01-01T01', '01-01T02', '01-01T03']],
    ['all', ['01-01T00', '01-01T01', '01-01T02', '01-01T03', '01-01T04']],
  ] as const)('again: %s', async (again, expected) => {
    const one = await prepared()
    await done('', 'Failed', at(1))
    await done('', 'Missed', at(2))
    await done('', 'Skipped', at(3))
    await done('', 'Completed', at(4))
    await runs().insertOne({
      _id: 'open',
      schedule: 's',
      task: 'other',
      phase: 'Running',
      scheduledFor: at(5),
      lockedAt: new Date('9000-01-01'),
    })
    await one.schedules.backfill('s', { ...RANGE, again })
    await toEnd(one)
    expect(one.ran).toEqual(expected)
  })

  test('what is due meanwhile waits for a run of the backfill, and goes before its next one', async () => {
    const [begun, open] = [gate(), gate()]
    const one = await prepared({}, async (due) => {
      begun.open()
      return due.getTime() === at(0).getTime() ? open.wait : Promise.resolve()
    })
    await one.schedules.backfill('s', RANGE)
    const first = one.replica.runOnce()
    await begun.wait
    const due = await dueSince(database.db, 's', 1_000)
    const other = scheduler(database.db, {
      tasks: {
        work: async (_args: unknown, run: { scheduledFor: Date }) =>
          void one.ran.push(run.scheduledFor.toISOString().slice(5, 13)),
      },
    })
    await other.replica.runOnce()
    expect(await runs().findOne({ scheduledFor: due })).toMatchObject({
      ...{ phase: 'Queued', progress: { waitingFor: expect.stringContaining('overlap: the run s@2026-01-01T00') } },
    })
    open.open()
    await first
    await toEnd(one)
    expect(one.ran.slice(0, 3)).toEqual(['01-01T00', due.toISOString().slice(5, 13), '01-01T01'])
    expect(await runs().countDocuments({ phase: 'Completed' })).toBe(7)
  })

  test('a run whose end is repeated after a crash begins no second follower', async () => {
    const [begun, open] = [gate(), gate()]
    const one = await prepared({ maxInstances: 3 }, async (due) => {
      if (due.getTime() !== at(1).getTime()) return
      begun.open()
      await open.wait
    })
    await one.schedules.backfill('s', RANGE)
    const first = one.replica.runOnce()
    await begun.wait
    const set = { phase: 'Running', lockedAt: new Date(1_000), lockedBy: 'gone~1#1.1' }
    await runs().updateOne({ scheduledFor: at(0) }, { $set: set })
    const other = scheduler(database.db, { tasks: { work: async () => undefined } })
    await other.replica.runOnce()
    expect(
      await runs()
        .find({}, { projection: { phase: 1, _id: 0 } })
        .toArray(),
    ).toEqual([{ phase: 'Completed' }, { phase: 'Running' }])
    open.open()
    await first
    expect(await toEnd(one)).toMatchObject({ condition: 'Done', over: 6 })
  })

  test('a run whose end is repeated, or comes to two replicas at once, begins one follower, whatever of it was stored', async () => {
    const one = await prepared({ maxInstances: 3 })
    await one.schedules.backfill('s', RANGE)
    const first = (await runs().findOne({ scheduledFor: at(0) })) as never
    const insertRun = async (run: object) =>
      runs()
        .insertOne(run as never)
        .then(
          () => 1,
          () => 0,
        )
    const place = { schedules, runs, insertRun } as never as BackfillPlace
    await continueBackfill(place, first)
    await continueBackfill(place, first)
    expect(await runs().distinct('scheduledFor')).toEqual([at(0), at(1)])
    await runs().deleteOne({ scheduledFor: at(1) })
    const asAnotherBegins = async (run: object) => {
      await continueBackfill(place, first)
      return insertRun(run)
    }
    await continueBackfill({ ...place, insertRun: asAnotherBegins } as never, first)
    expect(await runs().distinct('scheduledFor')).toEqual([at(0), at(1)])
  })

  test('as many go on as were asked for, also where the first has ended before the second is begun', async () => {
    const one = await prepared({ maxInstances: 2 })
    const of = one.schedules as never as { insertRun(run: NewRun): Promise<number> }
    const insertRun = of.insertRun.bind(of)
    let begun = 0
    of.insertRun = async (run) => {
      const count = await insertRun(run)
      begun += 1
      if (begun === 1) await continueBackfill({ schedules, runs, insertRun } as never, run)
      return count
    }
    await one.schedules.backfill('s', { ...RANGE, concurrency: 2 })
    const found = await runs().find().sort({ scheduledFor: 1 }).toArray()
    expect(found.map(({ backfill }) => backfill.after)).toEqual([undefined, found[0]!._id, undefined])
  })

  test.each([[5], [{}], [{ id: 7 }], [{ id: 'bf1', from: 'yesterday' }]])(
    'takes the place of one that a person has made unreadable: %j',
    async (damaged) => {
      const one = await prepared()
      await schedules().updateOne({ _id: 's' }, { $set: { backfill: damaged as never } })
      const { id } = await one.schedules.backfill('s', RANGE)
      expect(await one.schedules.backfillState('s')).toMatchObject({ id, condition: 'Running' })
    },
  )

  test('its schedule is paused: it waits; deleted, or aborted: no further run begins', async () => {
    const one = await prepared()
    await one.schedules.backfill('s', RANGE)
    await one.schedules.pause('s', { reason: 'lunch' })
    await one.replica.runOnce()
    expect(await one.schedules.backfillState('s')).toMatchObject({ condition: 'Paused', counts: { Queued: 1 } })
    await one.schedules.resume('s')
    await expect(one.schedules.backfill('s', RANGE)).rejects.toThrow(/there is one already: bf\w{8}, it is Running/)
    await one.schedules.abortBackfill('s', { by: 'ben' })
    await passForRuns(database.db, 2_100)
    await one.replica.runOnce()
    expect(await one.schedules.backfillState('s')).toMatchObject({ condition: 'Aborted', counts: { Skipped: 1 } })
    expect(one.ran).toEqual([])
    await expect(one.schedules.abortBackfill('s')).rejects.toThrow('it is Aborted')
    // One that was aborted makes room for the next.
    await one.schedules.backfill('s', RANGE)
    await schedules().deleteMany()
    await one.replica.runOnce()
    expect(await runs().countDocuments({ phase: 'Skipped' })).toBe(2)
    expect(await runs().countDocuments({ phase: { $in: ['Queued', 'Running'] } })).toBe(0)
  })

  test('a run that was deleted stops it, and it is resumed', async () => {
    const one = await prepared()
    await one.schedules.backfill('s', RANGE)
    await runs().deleteMany()
    expect(await one.schedules.backfillState('s')).toMatchObject({ condition: 'Stopped' })
    await one.schedules.resumeBackfill('s')
    expect(await toEnd(one)).toMatchObject({ condition: 'Done', over: 6 })
  })

  test.each([
    ['of another schedule', { schedule: 'another', scheduledFor: at(1) }],
    ['that says no time', { schedule: 's', scheduledFor: at(1).toISOString() }],
  ])("a document %s that has a run's _id is passed over", async (_what, fields) => {
    const one = await prepared()
    await one.schedules.backfill('s', RANGE)
    for (const hour of [0, 1]) {
      const _id = `s@${at(hour).toISOString()}`
      await runs().replaceOne({ _id }, { task: 'work', phase: 'Completed', ...fields }, { upsert: true })
    }
    await one.schedules.resumeBackfill('s')
    expect(await toEnd(one)).toMatchObject({ condition: 'Done', over: 4 })
    expect(one.ran).toEqual(['01-01T02', '01-01T03', '01-01T04', '01-01T05'])

    await one.schedules.backfill('s', { from: at(0, 2), to: at(3, 2) })
    const _id = `s@${at(1, 2).toISOString()}`
    await runs().insertOne({ _id, task: 'work', phase: 'Completed', ...fields })
    expect(await toEnd(one)).toMatchObject({ condition: 'Done', over: 3 })
    expect(one.ran.slice(4)).toEqual(['01-02T00', '01-02T02', '01-02T03'])
  })

  test('failed runs don’t stop it, and edits of its schedule don’t change it', async () => {
    const one = await prepared({}, async (due, args) => {
      expect(args).toEqual({ full: true })
      if (due.getTime() === at(2).getTime()) throw new Error('no')
    })
    await one.schedules.backfill('s', { ...RANGE, args: { full: true } })
    await one.schedules.upsert('s', { task: 'work', cron: '0 0 1 7 *' })
    expect(await toEnd(one)).toMatchObject({ condition: 'Done', over: 6, counts: { Completed: 5, Failed: 1 } })
  })

  test.each<[object, string]>([
    [{ from: 'x' }, 'from: expected a date, got x'],
    [{ from: at(5), to: at(0) }, 'from: expected a time before 2026-01-01T00:00:00.000Z, got 2026-01-01T05:00:00.000Z'],
    [{ from: at(0), to: new Date('2999-01-01') }, 'to: expected a time that has passed, got 2999-01-01T00:00:00.000Z'],
    [{ ...RANGE, again: 'some' }, "again: expected 'failed' or 'all', got some"],
    [{ ...RANGE, concurrency: 2 }, "concurrency: expected 1 to 1, the schedule's maxInstances, got 2"],
    [{ ...RANGE, why: 'rain' }, 'expected reason, got why: it is called reason now'],
    [{ ...RANGE, atMost: 0 }, 'atMost: expected 1 to 10000, got 0'],
    [{ ...RANGE, atMost: 5 }, 'expected at most 5 due times to run, there are more'],
    [{ from: new Date(0), to: at(0), atMost: 10_000 }, 'expected at most 10000 due times to run, there are more'],
    [
      { from: new Date('2026-01-01T00:30:00Z'), to: new Date('2026-01-01T00:40:00Z') },
      'nothing to run: of 0 due times',
    ],
  ])('%j is refused: %s', async (options, message) => {
    const one = await prepared()
    await expect(one.schedules.backfill('s', options as never)).rejects.toThrow(message)
    expect((await one.schedules.get('s'))!.backfill).toBeUndefined()
    expect(await runs().countDocuments()).toBe(0)
  })

  test('a schedule that is unknown, and one whose backfill a person has changed', async () => {
    const one = await prepared()
    await expect(one.schedules.backfill('none', RANGE)).rejects.toThrow("there is no schedule 'none'")
    await expect(one.schedules.resumeBackfill('s')).rejects.toThrow("backfill of 's': it has none")
    await schedules().updateOne({ _id: 's' }, { $set: { backfill: { id: 'x', from: 5 } } })
    expect(await one.schedules.backfills()).toEqual([])
    await one.replica.runOnce()
    await schedules().updateOne({ _id: 's' }, { $unset: { backfill: '' } })
    await one.schedules.backfill('s', RANGE)
    expect(await one.schedules.backfills()).toMatchObject([{ schedule: 's', condition: 'Running' }])
  })
})
