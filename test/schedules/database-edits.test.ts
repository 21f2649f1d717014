import { describe, expect, test } from '@jest/globals'
import type { Collection, Db } from 'mongodb'
import { backDate } from '../../src/testing/index.js'
import { useDatabase } from '../support/database.js'
import { dueSchedule, dueSince, type Scheduler, useSchedulers } from './support.js'

const raw = (db: Db): Collection<any> => db.collection('schedules')

/** The look for edits goes on at once, instead of within its second. */
async function look({ replica }: Scheduler, db: Db): Promise<void> {
  await backDate(db.collection('schedules.watch'), 60_000)
  await replica.runOnce()
}

describe('edits made in the database, by any client in any language', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()

  test('another cron: planned anew, noticed, kept without who', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    await one.schedules.upsert('s', { task: 'work', cron: '0 0 1 1 *' }, { by: 'anna' })
    await one.replica.runOnce()
    const before = (await one.schedules.get('s'))!
    await raw(database.db).updateOne({ _id: 's' }, { $set: { cron: '* * * * *' } })
    await look(one, database.db)
    const after = (await one.schedules.get('s'))!
    expect(after.nextRunAt!.getTime()).toBeLessThan(before.nextRunAt!.getTime())
    expect(after.lockedAt!.getTime()).toBeLessThan(before.lockedAt!.getTime())
    expect(after.edits).toMatchObject([
      { action: 'created', by: 'anna' },
      { action: 'noticed', changes: { cron: { from: '0 0 1 1 *', to: '* * * * *' } } },
    ])
    expect(after.edits![1]).not.toHaveProperty('by')
    await look(one, database.db)
    expect((await one.schedules.get('s'))!.edits).toHaveLength(2)
  })

  test('added with the least there is, deactivated, activated, deleted', async () => {
    const ran: unknown[] = []
    const one = scheduler(database.db, { tasks: { work: async () => void ran.push(1) } })
    await raw(database.db).insertMany([
      { _id: 'with a phase', phase: 'Active', task: 'work', cron: '0 0 1 1 *' },
      { _id: 'without', task: 'work', interval: '1d' },
    ])
    await one.replica.runOnce()
    await look(one, database.db)
    for (const id of ['with a phase', 'without']) {
      expect(await one.schedules.get(id)).toMatchObject({ phase: 'Active', nextRunAt: expect.any(Date) })
    }
    await raw(database.db).updateMany({}, { $set: { isActive: false } })
    await dueSince(database.db, 'without', 1_000)
    await look(one, database.db)
    expect(ran).toEqual([])
    expect(await one.schedules.list()).toMatchObject([
      { phase: 'Paused', nextRunAt: null },
      { phase: 'Paused', nextRunAt: null },
    ])
    await raw(database.db).updateOne({ _id: 'without' }, { $set: { isActive: true } })
    await look(one, database.db)
    expect(await one.schedules.get('without')).toMatchObject({ phase: 'Active', nextRunAt: expect.any(Date) })
    await dueSince(database.db, 'without', 1_000)
    await raw(database.db).deleteMany({})
    await one.replica.runOnce()
    expect(ran).toEqual([])
  })

  test('one that can not run is broken and says why, others run; mended, it runs', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    await raw(database.db).insertMany([
      { _id: 'cron', phase: 'Active', task: 'work', cron: '0 25 * * *' },
      { _id: 'missing', phase: 'Active', cron: '0 * * * *' },
      { _id: 'args', phase: 'Active', task: 'work', cron: '0 * * * *', args: { since: new Date() } },
      { _id: 7, phase: 'Active', task: 'work', cron: '0 * * * *' },
    ])
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    expect(await one.schedules.runs('s')).toMatchObject([{ phase: 'Completed' }])
    const broken = await one.schedules.list({ phase: 'Broken' })
    expect(broken.map((schedule) => schedule.broken)).toEqual([
      expect.stringContaining('_id: expected a string of at most 200 characters, got number'),
      expect.stringContaining(
        'args.since: expected JSON (null, true, false, numbers, strings, arrays, objects), got a Date',
      ),
      expect.stringContaining('hour: expected 0-23'),
      expect.stringContaining('task: expected the name of a registered task, got undefined'),
    ])
    await raw(database.db).updateOne({ _id: 'cron' }, { $set: { cron: '0 23 * * *' } })
    await raw(database.db).updateOne({ _id: 'missing' }, { $set: { task: 'work' } })
    await look(one, database.db)
    expect(await one.schedules.list({ phase: 'Active' })).toMatchObject([
      { _id: 'cron', broken: null },
      { _id: 'missing', broken: null },
      { _id: 's' },
    ])
  })

  test('a field that is nearly one of ours is told once in the log and stands in the schedule; written right it is gone', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    await raw(database.db).insertOne({ _id: 'near', task: 'work', cron: '0 * * * *', is_active: false })
    const told = () => one.logger.lines.filter(({ message }) => message.includes('is_active'))
    for (let i = 0; i < 3; i++) {
      await look(one, database.db)
      await raw(database.db).updateOne({ _id: 'near', lockedBy: null }, { $set: { lockedAt: new Date(0) } })
    }
    const warnings = ['is_active: not a field of a schedule, so it has no effect; did you mean isActive?']
    expect(await one.schedules.get('near')).toMatchObject({ phase: 'Active', warnings })
    expect(told()).toMatchObject([{ level: 'warn', message: `schedule 'near': ${warnings[0]}` }])
    await raw(database.db).updateOne({ _id: 'near' }, { $rename: { is_active: 'isActive' } })
    await look(one, database.db)
    expect(await one.schedules.get('near')).toMatchObject({ phase: 'Paused', warnings: null })
    expect(told()).toHaveLength(1)
  })

  test('without a phase it is seen at once wherever the walk is, which goes on through ids of every type', async () => {
    const one = scheduler(database.db, { watchPerSecond: 2 })
    const fields = { task: 'work', cron: '0 0 1 1 *' }
    await raw(database.db).insertMany([1, 2, 3, 'a', 'b'].map((_id) => ({ _id, phase: 'Active', ...fields })) as never)
    await one.replica.runOnce()
    await raw(database.db).insertMany([{ _id: true, ...fields } as never, { _id: '$z', ...fields }])
    await look(one, database.db)
    await expect(one.schedules.remove({ $gt: '' } as never)).rejects.toThrow(
      'expected the id of a schedule or of a run, a string',
    )
    await expect(one.schedules.findRun(undefined as never)).rejects.toThrow(
      'expected the id of a schedule or of a run, a string',
    )
    const operator = { phase: { $ne: 'x' } } as never
    await expect(one.schedules.list(operator)).rejects.toThrow('schedules.list: phase: expected a string')
    await expect(one.schedules.runs('a', operator)).rejects.toThrow('schedules.runs: phase: expected a string')
    await expect(one.schedules.statistics('a', null as never)).rejects.toThrow('schedules.statistics: ')
    const broken = { phase: 'Broken', broken: '_id: expected a string of at most 200 characters, got boolean' }
    expect(await one.schedules.get(true as never)).toMatchObject(broken)
    expect(await one.schedules.get('$z')).toMatchObject({ phase: 'Active', nextRunAt: expect.any(Date) })
    await raw(database.db).updateOne({ _id: 'b' }, { $set: { cron: '* * * * *' } })
    // Five chunks and the empty one hold all seven, wherever it has been.
    for (let chunks = 0; chunks < 5; chunks += 1) await look(one, database.db)
    expect((await one.schedules.get('b'))!.edits).toMatchObject([{ action: 'noticed' }])
  })

  test('one in a phase that there is not is broken too, until that is mended', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 } })
    const wrong = { task: 'work', cron: '0 0 1 1 *' }
    await raw(database.db).insertMany([
      { _id: 'case', phase: 'active', ...wrong },
      { _id: 'null', phase: null, ...wrong },
      { _id: 'number', phase: 5, ...wrong },
    ])
    await one.replica.runOnce()
    await look(one, database.db)
    const expected = 'phase: expected Active or none, as Phaselock sets it (to pause, use isActive or paused); got '
    expect(await one.schedules.list()).toMatchObject([
      { _id: 'case', phase: 'Broken', broken: `${expected}active` },
      { _id: 'null', phase: 'Active', nextRunAt: expect.any(Date) },
      { _id: 'number', phase: 'Broken', broken: `${expected}5` },
    ])
    await raw(database.db).updateOne({ _id: 'case' }, { $set: { phase: 'Active' } })
    await one.schedules.upsert('number', { ...wrong, cron: '0 0 2 1 *' })
    await look(one, database.db)
    for (const id of ['case', 'number']) {
      const mended = await one.schedules.get(id)
      expect(mended).toMatchObject({ phase: 'Active', nextRunAt: expect.any(Date) })
      expect(mended!.broken ?? null).toBeNull()
      expect(mended).not.toHaveProperty('isMisnamed')
    }
  })

  test('the look goes through all schedules in bounded chunks', async () => {
    const one = scheduler(database.db, { tasks: { work: async () => 1 }, watchPerSecond: 10 })
    const ids = Array.from({ length: 35 }, (_, i) => `s${String(i).padStart(2, '0')}`)
    for (const id of ids) await one.schedules.upsert(id, { task: 'work', cron: '0 0 1 1 *' })
    await one.replica.runOnce()
    await raw(database.db).updateMany({ _id: { $in: ['s00', 's17', 's34'] } }, { $set: { cron: '0 0 2 1 *' } })
    for (let i = 0; i < 5; i += 1) await look(one, database.db)
    const edited = await raw(database.db).find({ 'edits.action': 'noticed' }).toArray()
    expect(edited.map((schedule) => schedule._id)).toEqual(['s00', 's17', 's34'])
  })
})
