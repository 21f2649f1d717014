import { afterEach, describe, expect, test } from '@jest/globals'
import { lifecycleOf, Replica, silentLogger } from '../../src/index.js'
import { InvalidTask, starts } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'
import { dueSchedule, dueSince, useSchedulers } from './support.js'

interface Night {
  _id: string
  day: string
}
const night = lifecycleOf<Night>().define({
  name: 'night',
  collection: 'Night',
  phases: { Counting: { next: ['Counted'] }, Counted: { rest: true } },
})

describe('a schedule that starts documents', () => {
  const database = useDatabase()
  const scheduler = useSchedulers()
  const replicas: Replica[] = []
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  const stored = () => database.db.collection<Night & { phase: string }>('Night')

  async function started(options?: Parameters<typeof starts>[2], fields?: () => never) {
    const nights = night.handle({ Counting: async (_doc, step) => step.moveTo('Counted') })
    const replica = new Replica({ db: database.db, lifecycles: [nights], logger: silentLogger })
    replicas.push(replica)
    await replica.prepare()
    const work = starts(
      nights,
      fields ?? ((args: { day: string }, run) => ({ day: `${args.day} ${run.trigger}` })),
      options,
    )
    const one = scheduler(database.db, { tasks: { work } })
    const due = await dueSchedule(one, database.db, { args: { day: 'monday' } })
    await one.replica.runOnce()
    return { replica, one, due }
  }

  test('starts one for each due time, whose work goes on without the run', async () => {
    const { replica, one, due } = await started()
    const id = `s@${due.toISOString()}`
    expect(await stored().findOne({})).toMatchObject({ _id: id, day: 'monday schedule', phase: 'Counting' })
    const [run] = await one.schedules.runs('s')
    expect(run).toMatchObject({ phase: 'Completed', result: { lifecycle: 'night', id } })
    await replica.runOnce()
    expect(await stored().findOne({})).toMatchObject({ phase: 'Counted' })
  })

  test('starts none twice: a run that is tried again finds its document', async () => {
    const { one, due } = await started({ whileOpen: 'start' })
    const runs = database.db.collection<{ _id: string }>('runs')
    // As if its replica had died before it recorded the run.
    await runs.updateOne({ _id: `s@${due.toISOString()}` }, [
      { $set: { phase: 'Queued', lockedAt: new Date(0) } },
      { $unset: ['outcome', 'startedAt', 'completedAt', 'result'] },
    ])
    await one.replica.runOnce()
    expect((await one.schedules.runs('s'))[0]).toMatchObject({ phase: 'Completed', result: { lifecycle: 'night' } })
    expect(await stored().countDocuments()).toBe(1)
  })

  test.each([
    ['skip', 1],
    ['start', 2],
  ] as const)('while the one before goes on: %s', async (whileOpen, count) => {
    const { one, replica, due } = await started({ whileOpen })
    await dueSince(database.db, 's', 500)
    await one.replica.runOnce()
    expect(await stored().countDocuments()).toBe(count)
    const [run] = await one.schedules.runs('s')
    expect(run!.result).toEqual(
      expect.objectContaining(whileOpen === 'skip' ? { skippedFor: `s@${due.toISOString()}` } : { lifecycle: 'night' }),
    )
    await replica.runOnce()
    await dueSince(database.db, 's', 100)
    await one.replica.runOnce()
    expect(await stored().countDocuments()).toBe(count + 1)
  })

  test('one that was removed does not go on, be it still there to be told', async () => {
    const { one } = await started()
    await stored().updateOne({}, { $set: { phase: '$removed:night' } })
    await dueSince(database.db, 's', 500)
    await one.replica.runOnce()
    expect(await stored().countDocuments({ phase: 'Counting' })).toBe(1)
  })

  test.each<[string, () => unknown, object]>([
    ['waits for a promise', async () => ({ day: 'x' }), { phase: 'Completed' }],
    [
      'fails with a promise',
      () => Promise.reject(new Error('no days')),
      { phase: 'Failed', error: { message: 'no days' } },
    ],
    ['takes no text for a document', () => 'x', { phase: 'Failed', error: { name: 'InvalidTask' } }],
    [
      'takes no field of Phaselock',
      () => ({ day: 'x', progress: 5 }),
      { phase: 'Failed', error: { name: 'InvalidDocument' } },
    ],
    ['takes no odd time', () => ({ day: 'x', lockedAt: 5 }), { phase: 'Failed', error: { name: 'InvalidDocument' } }],
  ])('the function that makes the document: %s', async (_what, fields, expected) => {
    const { one } = await started(undefined, fields as never)
    expect((await one.schedules.runs('s'))[0]).toMatchObject(expected)
    const [document, ...others] = await stored().find().toArray()
    expect(others).toEqual([])
    expect(document?.day).toBe('error' in expected ? undefined : 'x')
  })

  test('is refused without a lifecycle with handlers, or with an unknown option', () => {
    expect(() => starts(night as never, () => ({ day: 'x' }) as never)).toThrow(InvalidTask)
    const nights = night.handle({ Counting: async (_doc, step) => step.moveTo('Counted') })
    expect(() => starts(nights, () => ({ day: 'x' }), { whileopen: 'skip' } as never)).toThrow(
      /unknown option 'whileopen'/,
    )
    expect(() => starts(nights, () => ({ day: 'x' }), { whileOpen: 'wait' as never })).toThrow(/'skip' or 'start'/)
    // @ts-expect-error a field is missing
    starts(nights, () => ({}))
  })
})
