import { describe, expect, test } from '@jest/globals'
import { Audit, type AuditEntry } from '../../src/index.js'
import { MOST_PAUSES } from '../../src/lock/index.js'
import {
  listSchedulePauses,
  pauseSchedules,
  removeSchedule,
  resumeSchedules,
  type System,
  setSchedule,
} from '../../src/operations/index.js'
import { InvalidSchedule, type Pause, PausedByOthers } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'
import { thing } from '../support/thing.js'
import { useSchedulers } from './support.js'

const LATER = new Date('2999-01-01T00:00:00Z')
const SOON = new Date('2998-01-01T00:00:00Z')

describe('pauses of a schedule by several people', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()
  const system = (by: string): System => ({ db: database.db, models: [thing.model], audit: { by } })
  const owners = (pauses: unknown) => (pauses as readonly Pause[]).map(({ by }) => by)
  const raw = () => database.db.collection<{ _id: string; [field: string]: unknown }>('schedules')

  async function planned() {
    const one = scheduler(database.db, { tasks: { work: async () => undefined } })
    await one.schedules.upsert('s', { task: 'work', cron: '0 0 1 1 *' })
    await one.replica.runOnce()
    const look = async () => {
      await raw().updateOne({ _id: 's' }, { $set: { lockedAt: new Date(0) } })
      await one.replica.runOnce()
      return (await one.schedules.get('s'))!
    }
    return { ...one, look }
  }

  test('each has an owner, a reason and an end; it runs again when the last has ended', async () => {
    const { schedules, look } = await planned()
    await schedules.pause('s', { by: 'ana', reason: 'it is moving' })
    const { before, after } = await schedules.pause('s', { by: 'ben', reason: 'a test', until: SOON })
    expect([owners(before), owners(after)]).toEqual([['ana'], ['ana', 'ben']])
    const ana = { schedule: 's', by: 'ana', reason: 'it is moving', at: expect.any(Date) }
    expect(await schedules.pauses({ schedule: 's' })).toEqual([
      ana,
      { schedule: 's', by: 'ben', reason: 'a test', until: SOON, at: expect.any(Date) },
    ])
    expect(await look()).toMatchObject({ phase: 'Paused', nextRunAt: null, paused: { by: 'ana' } })
    await schedules.pause('s', { by: 'ben', until: LATER })
    expect(await schedules.pauses()).toMatchObject([ana, { by: 'ben', until: LATER }])
    expect(owners((await schedules.resume('s', { by: 'ana' })).after)).toEqual(['ben'])
    expect(await look()).toMatchObject({ phase: 'Paused', paused: { by: 'ben', until: LATER } })
    // The only one there is, whoever asked for it.
    expect(await schedules.resume('s', { by: 'carl' })).toMatchObject({ before: [{ by: 'ben' }], after: [] })
    const resumed = await look()
    expect(resumed).toMatchObject({ phase: 'Active', nextRunAt: expect.any(Date) })
    expect([resumed.paused, resumed.pauses]).toEqual([undefined, undefined])
  })

  test('none of several that is meant: refused, and nothing changes; of says whose ends', async () => {
    const { schedules } = await planned()
    for (const by of ['ana', 'ben', undefined]) await schedules.pause('s', { by })
    const stored = await raw().findOne({ _id: 's' })
    const failure = await schedules.resume('s', { by: 'carl' }).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(PausedByOthers)
    expect(failure).toMatchObject({
      message: "schedule 's' is paused by ana, ben, somebody: none of these pauses is yours; `of` says whose is to end",
      by: ['ana', 'ben', undefined],
    })
    await expect(schedules.resume('s', { by: 'ana', of: 'dan' })).rejects.toThrow("none is dan's")
    expect(await raw().findOne({ _id: 's' })).toEqual(stored)
    await schedules.resume('s', { by: 'carl', of: 'ben' })
    expect(owners(await schedules.pauses())).toEqual(['ana', undefined])
    // A program that doesn't say who it is.
    await schedules.resume('s')
    expect(owners(await schedules.pauses())).toEqual(['ana'])
  })

  test('all are paused beside what others have paused, and are resumed likewise', async () => {
    const { schedules } = await planned()
    for (const id of ['a', 'b']) await schedules.upsert(id, { task: 'work', cron: '0 0 1 1 *' })
    await schedules.pause('a', { by: 'ben', until: SOON })
    expect(await schedules.pauseAll({ by: 'ana', reason: 'incident 7' })).toBe(3)
    expect((await schedules.pauses()).map(({ schedule, by }) => [schedule, by])).toEqual([
      ['a', 'ben'],
      ['a', 'ana'],
      ['b', 'ana'],
      ['s', 'ana'],
    ])
    expect((await schedules.list()).map(({ pauses }) => owners(pauses))).toEqual([['ben', 'ana'], ['ana'], ['ana']])
    expect(await schedules.resumeAll({ by: 'ana' })).toBe(3)
    expect(owners(await schedules.pauses())).toEqual(['ben'])
    await schedules.pause('a', { by: 'ana' })
    expect(await schedules.resumeAll({ by: 'carl' })).toBe(0)
  })

  test.each([
    ['true', true, [undefined]],
    ['an object', { reason: 'by hand', until: SOON }, [undefined]],
    ['taken off', null, []],
  ])('a pause that is written by hand replaces all: %s', async (_what, paused, left) => {
    const { schedules, look } = await planned()
    for (const by of ['ana', 'ben']) await schedules.pause('s', { by })
    await raw().updateOne({ _id: 's' }, { $set: { paused } })
    expect(owners(await schedules.pauses())).toEqual(left)
    expect(await look()).toMatchObject({ phase: left.length > 0 ? 'Paused' : 'Active' })
    await schedules.pause('s', { by: 'carl' })
    expect(owners(await schedules.pauses())).toEqual([...left, 'carl'])
  })

  test('there is a bound, and nothing is dropped for one more', async () => {
    const { schedules } = await planned()
    const pauses = Array.from({ length: MOST_PAUSES }, (_, i) => ({ by: `p${i}`, at: new Date(0) }))
    await raw().updateOne({ _id: 's' }, { $set: { pauses, paused: pauses[0] } })
    const failure = await schedules.pause('s', { by: 'ana' }).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(InvalidSchedule)
    expect((failure as Error).message).toContain(`it has ${MOST_PAUSES} pauses already`)
    expect(await schedules.pauseAll({ by: 'ana' })).toBe(0)
    await schedules.pause('s', { by: 'p7', until: LATER })
    expect(await schedules.pauses({ limit: 1_000 })).toHaveLength(MOST_PAUSES)
  })

  test('the audit has what was before and after', async () => {
    const { schedules } = await planned()
    const last = async (): Promise<AuditEntry> => (await new Audit(database.db).list({ limit: 1 }))[0]!
    const fields = { task: 'work', cron: '0 0 2 1 *' }
    await setSchedule(system('ana'), 's', fields, 'ana')
    expect(await last()).toMatchObject({
      action: 'schedules set',
      before: { task: 'work', cron: '0 0 1 1 *', isActive: true },
      after: { ...fields, isActive: true },
    })
    await setSchedule(system('ana'), 'new', fields, 'ana')
    expect(await last()).toMatchObject({ before: null, after: fields })
    await pauseSchedules(system('ana'), 's', { by: 'ana' })
    await pauseSchedules(system('ben'), 's', { by: 'ben', reason: 'a test' })
    expect(await last()).toMatchObject({
      action: 'schedules pause',
      before: { pauses: [{ by: 'ana' }] },
      after: { pauses: [{ by: 'ana' }, { by: 'ben', reason: 'a test' }] },
    })
    await expect(resumeSchedules(system('carl'), 's', 'carl')).rejects.toMatchObject({
      name: 'Refused',
      obstacle: { reason: 'pausedByOthers', by: ['ana', 'ben'] },
    })
    expect(await last()).toMatchObject({ action: 'schedules resume', outcome: 'refused' })
    expect(await resumeSchedules(system('carl'), 's', 'carl', 'ben')).toBe(1)
    const [beside, left] = [{ pauses: [{ by: 'ana' }, { by: 'ben' }] }, { pauses: [{ by: 'ana' }] }]
    expect(await last()).toMatchObject({ outcome: 'done', before: beside, after: left })
    expect(await listSchedulePauses(system('carl'), 's')).toMatchObject([{ schedule: 's', by: 'ana' }])
    await pauseSchedules(system('ben'), undefined, { by: 'ben' })
    expect(await last()).toMatchObject({
      before: left,
      after: { pauses: [{ schedule: 'new', by: 'ben' }, { schedule: 's', by: 'ana' }, { by: 'ben' }] },
    })
    await resumeSchedules(system('ben'), undefined, 'ben')
    expect(await last()).toMatchObject({ after: left })
    await removeSchedule(system('ana'), 's')
    expect(await last()).toMatchObject({ action: 'schedules remove', before: fields, after: null })
    expect(await schedules.get('s')).toBeNull()
  })
})
