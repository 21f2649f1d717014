import { describe, expect, test } from '@jest/globals'
import { InvalidSchedule, type ScheduleFields } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'
import { dueSchedule, useSchedulers } from './support.js'

type Fields = Partial<ScheduleFields>

/** Each says the same twice. */
const SAME: readonly [Fields, Fields][] = [
  [{ interval: '1h' }, { interval: '3600s' }],
  [{ interval: '1h' }, { interval: '60m', timezone: 'Asia/Seoul' }],
  [{ cron: '0 0 1 1 *' }, { cron: '0 0 1 1 *', timezone: 'UTC' }],
  [{ cron: '0 0 1 1 *' }, { cron: ' 0  0 1 1 * ' }],
  [{ cron: '@yearly' }, { cron: '@YEARLY' }],
  [{ cron: '0 0 1 1 *' }, { cron: '0 0 1 JAN *', isActive: true }],
  [
    { interval: '1h', startAt: new Date('2020-01-01T00:00:00Z') },
    { interval: '1h', startAt: '2020-01-01T01:00:00+01:00' },
  ],
  [
    { interval: '1h', endAt: '2120-01-01T00:00:00Z' },
    { interval: '1h', endAt: new Date('2120-01-01T00:00:00Z'), startAt: null },
  ],
]

describe('an edit of a schedule that is due', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()
  const ran: string[] = []
  const schedules = () => database.db.collection<{ _id: string }>('schedules')

  function one() {
    ran.length = 0
    return scheduler(database.db, { tasks: { work: async (_args, run) => ran.push(run.id) } })
  }

  describe.each(['upsert', 'by hand'] as const)('%s', (how) => {
    const edit = async ({ schedules: owner }: ReturnType<typeof one>, fields: Fields) => {
      if (how === 'upsert') await owner.upsert('s', { task: 'work', ...fields } as ScheduleFields)
      else await schedules().updateOne({ _id: 's' }, { $set: fields })
    }

    test.each(SAME)('%j means the same as %j: what is due runs', async (before, after) => {
      const all = one()
      const due = await dueSchedule(all, database.db, before)
      await edit(all, after)
      await all.replica.runOnce()
      expect(ran).toEqual([`s@${due.toISOString()}`])
    })

    test('another interval drops what was due: it is Skipped, with the reason', async () => {
      const all = one()
      const due = await dueSchedule(all, database.db, { interval: '1h' })
      await edit(all, { interval: '2h' })
      await all.replica.runOnce()
      expect(ran).toEqual([])
      expect(await all.schedules.runs('s')).toMatchObject([
        {
          phase: 'Skipped',
          scheduledFor: due,
          reason: 'the schedule was edited before this ran: it is planned anew from then on',
        },
      ])
      expect((await all.schedules.get('s'))!.nextRunAt!.getTime()).toBeGreaterThan(due.getTime() + 3_600_000)
      expect((await all.schedules.get('s'))!.superseded ?? null).toBeNull()
    })

    test.each<[string, object, string]>([
      ['deactivated', { isActive: false }, 'the schedule was deactivated'],
      ['broken', { interval: 'often' }, 'the schedule was edited before this ran'],
    ])('that leaves it %s drops what was due: it is Skipped', async (what, fields, reason) => {
      if (what === 'broken' && how === 'upsert') return // is refused
      const all = one()
      const due = await dueSchedule(all, database.db, { interval: '1h' })
      await edit(all, { interval: '1h', ...fields })
      await all.replica.runOnce()
      expect(await all.schedules.runs('s')).toMatchObject([
        { phase: 'Skipped', scheduledFor: due, reason: expect.stringContaining(reason) },
      ])
    })
  })

  test('all that was due by the fields as they were is Skipped, the latest 100 at most', async () => {
    const all = one()
    await dueSchedule(all, database.db, { interval: '1s', coalesce: false })
    await schedules().updateOne({ _id: 's' }, [
      { $set: { nextRunAt: { $subtract: ['$$NOW', 300_000] }, createdAt: new Date('2026-01-01T00:00:00Z') } },
    ])
    await all.schedules.upsert('s', { task: 'work', interval: '1h' })
    await all.replica.runOnce()
    const runs = await all.schedules.runs('s', { limit: 1_000 })
    expect(runs.filter(({ phase }) => phase === 'Skipped')).toHaveLength(100)
    expect(ran).toEqual([])
  })

  test('observers hear why', async () => {
    const ends: unknown[] = []
    const all = scheduler(database.db, {
      tasks: { work: async () => 1 },
      observer: { ended: ({ outcome, why }) => ends.push([outcome, why]) },
    })
    await dueSchedule(all, database.db, { interval: '1h' })
    await all.schedules.upsert('s', { task: 'work', interval: '2h' })
    await all.replica.runOnce()
    expect(ends).toEqual([['Skipped', 'edited']])
  })

  test.each<[Fields, string]>([
    [{ interval: '10s', jitter: '11s' }, 'jitter: expected at most the 10000 ms between two due times, got "11s"'],
    [{ cron: '* * * * *', jitter: '10m' }, 'jitter: expected at most the 60000 ms between two due times, got "10m"'],
    [{ cron: '0 8-9 * * *', jitter: '2h' }, 'jitter: expected at most the 3600000 ms between two due times'],
  ])('jitter beyond the next due time is refused: %j', async (fields, message) => {
    const all = one()
    const upsert = all.schedules.upsert('s', { task: 'work', ...fields } as ScheduleFields)
    await expect(upsert).rejects.toThrow(InvalidSchedule)
    await expect(upsert).rejects.toThrow(message)
    const fitting = { interval: '10s', jitter: '10s' } as const
    expect(await all.schedules.upsert('s', { task: 'work', ...fitting })).toBe('created')
    expect(await all.schedules.upsert('once', { task: 'work', at: '2120-01-01T00:00:00Z', jitter: '5h' })).toBe(
      'created',
    )
  })
})
