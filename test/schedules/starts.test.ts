import { describe, expect, test } from '@jest/globals'
import { Replica, silentLogger } from '../../src/index.js'
import { cancelStep, removeDocument } from '../../src/operations/index.js'
import { InvalidTask, starts } from '../../src/schedules/index.js'
import { gate } from '../support/thing.js'
import { counted, type Given, night, type Started, useStarted } from './started.js'
import { dueSchedule, dueSince } from './support.js'

describe('a schedule that starts documents', () => {
  const { database, scheduler, replicas, stored, runs, started, latest, lookAgain } = useStarted()

  test('starts one for each due time, and is running until that has ended', async () => {
    const all = await started()
    const { replica, one, id } = all
    expect(await stored().findOne({})).toMatchObject({ _id: id, day: 'monday schedule', phase: 'Counting' })
    expect(await latest(all)).toMatchObject({ phase: 'Running', started: { lifecycle: 'night', id } })
    expect(one.replica.status().running).toBe(0)
    expect(await database.db.collection('shedLock').countDocuments({ $expr: { $gt: ['$lockUntil', '$$NOW'] } })).toBe(0)
    await replica.runOnce()
    // The end of the document wakes its run.
    await one.replica.runOnce()
    expect(await latest(all)).toMatchObject({ phase: 'Completed', outcome: 'Completed', error: null })
    expect(await stored().findOne({})).toMatchObject({ phase: 'Counted' })
  })

  test('takes over how its document ended: counters, result, when', async () => {
    const seen: unknown[] = []
    const all = await started({
      counting: async (_doc, step) =>
        step.moveTo('Counted', {
          set: { counters: { sheep: 7, 'no.name': 1, wolf: 'x' }, result: { asleep: true } },
        }) as never,
      callbacks: { onSuccess: (run) => seen.push(run.counters) },
    })
    const { replica, one, id } = all
    await replica.runOnce()
    const since = new Date(Date.now() + 60_000)
    await stored().updateOne({ _id: id }, { $set: { 'progress.since': since } })
    await one.replica.runOnce()
    const run = await latest(all)
    expect(run).toMatchObject({
      phase: 'Completed',
      counters: { sheep: 7 },
      result: { asleep: true },
      completedAt: since,
    })
    expect(run.durationMs).toBe(since.getTime() - run.startedAt!.getTime())
    expect(seen).toEqual([{ sheep: 7 }])
    expect(await one.schedules.statistics('s')).toMatchObject({ successRate: 1, meanMs: run.durationMs })
  })

  test('has failed where its document has, with its error, and makes no further try', async () => {
    const all = await started({
      fields: { retry: { attempts: 5 } },
      counting: async (_doc, step) => {
        if (step.attempt === 1) throw new RangeError('too many sheep')
        return step.moveTo('Miscounted') as never
      },
    })
    const { replica, one, nights, id } = all
    await replica.runOnce()
    expect(await latest(all)).toMatchObject({ phase: 'Running' })
    await stored().updateOne({ _id: id }, { $set: { error: { name: 'Sheep', message: 'lost' } } } as object)
    await nights.wake(id)
    await lookAgain(all)
    expect(await latest(all)).toMatchObject({ phase: 'Failed', error: { name: 'Sheep', message: 'lost' } })
    expect(await one.schedules.statistics('s')).toMatchObject({ successRate: 0 })
  })

  test('says that it was Failed in a phase where the document says no more', async () => {
    const all = await started({ counting: async (_doc, step) => step.moveTo('Miscounted') as never })
    await all.replica.runOnce()
    await all.one.replica.runOnce()
    expect(await latest(all)).toMatchObject({
      phase: 'Failed',
      error: { name: 'DocumentFailed', message: `night ${all.id} has ended in Miscounted` },
    })
  })

  test('waits for a person with its document, and has failed where that was removed', async () => {
    const all = await started({ counting: async (_doc, step) => step.park('no sheep') as never })
    await all.replica.runOnce()
    await lookAgain(all)
    const waiting = (await latest(all)) as { phase: string; progress?: { waitingFor: string } }
    expect(waiting).toMatchObject({ phase: 'Running' })
    expect(waiting.progress!.waitingFor).toBe(`night ${all.id} is parked in Counting: no sheep`)
    await all.nights.remove(all.id)
    await lookAgain(all)
    expect(await latest(all)).toMatchObject({
      phase: 'Failed',
      error: { name: 'DocumentRemoved', message: `night ${all.id} was removed before it had ended` },
    })
  })

  test.each(['a program', 'the command line'])('is looked at as soon as %s removes its document', async (who) => {
    const all = await started({ counting: async (_doc, step) => step.park('no sheep') as never })
    const { nights, replica, one, id } = all
    await replica.runOnce()
    await lookAgain(all)
    const system = { db: database.db, models: [nights.model], doorbell: 'off' } as const
    if (who === 'a program') await nights.remove(id)
    else await removeDocument(system, { id, lifecycle: 'night' })
    await one.replica.runOnce()
    expect(await latest(all)).toMatchObject({ phase: 'Failed', error: { name: 'DocumentRemoved' } })
  })

  test.each([
    ['before it stored what it started', { $unset: { started: 1, 'progress.awaits': 1 } }],
    ['while it waited', { $set: { 'progress.claims': 1 } }],
  ] as const)('goes on with its document if its replica dies %s', async (_when, change) => {
    const all = await started()
    await runs().updateOne({ _id: all.id }, change as object)
    await runs().updateOne({ _id: all.id }, {
      $set: { lockedBy: 'gone~1#1.1', lockedAt: new Date(Date.now() - 60_000) },
    } as object)
    await all.one.replica.runOnce()
    expect(await latest(all)).toMatchObject({ phase: 'Running', started: { id: all.id } })
    expect(await stored().countDocuments()).toBe(1)
    await all.replica.runOnce()
    await all.one.replica.runOnce()
    expect(await latest(all)).toMatchObject({ phase: 'Completed' })
  })

  describe('cancelled', () => {
    const cancel = ({ one, nights }: Started, id: string, waitMs = 0) =>
      cancelStep(
        { db: database.db, models: [nights.model, ...one.schedules.lifecycles.map(({ model }) => model)] },
        { id, lifecycle: 'schedules.runs' },
        { by: 'ana', reason: 'stuck', waitMs },
      )
    const failed = {
      phase: 'Failed',
      error: { name: 'StepAborted', message: 'the step was asked to stop: cancelled by ana: stuck' },
    }

    test('while a step of its document runs: that is asked to stop, and then the run has failed', async () => {
      const began = gate()
      const all = await started({
        counting: async (_doc, step) => {
          began.open()
          await new Promise((resolve) => step.signal.addEventListener('abort', resolve))
          return step.wait('rain') as never
        },
      })
      const { replica, one, id } = all
      await replica.tick()
      await began.wait
      await cancel(all, id)
      await one.replica.runOnce()
      expect(await latest(all)).toMatchObject({ phase: 'Running' })
      await replica.tick()
      await replica.idle()
      expect(await stored().findOne({})).toMatchObject({ phase: 'Counting', lockedAt: new Date('9999-12-31') })
      await lookAgain(all)
      expect(await latest(all)).toMatchObject(failed)
    })

    test.each(['due', 'asleep'])('while its document is %s: that is parked', async (how) => {
      const all = await started({ counting: async (_doc, step) => step.wait('rain', { for: '1h' }) as never })
      if (how === 'asleep') await all.replica.runOnce()
      await cancel(all, all.id)
      await all.one.replica.runOnce()
      expect(await latest(all)).toMatchObject(failed)
      expect(await stored().findOne({})).toMatchObject({
        lockedAt: new Date('9999-12-31'),
        progress: { error: { name: 'Cancelled', message: 'cancelled by ana: stuck' } },
      })
      // What is parked stands in nobody's way: its run is over.
      await dueSince(database.db, 's', 500)
      await all.one.replica.runOnce()
      expect(await stored().countDocuments()).toBe(2)
    })

    test('after its document has ended: it has ended so', async () => {
      const all = await started()
      await all.replica.runOnce()
      await cancel(all, all.id)
      await all.one.replica.runOnce()
      expect(await latest(all)).toMatchObject({ phase: 'Completed' })
    })
  })

  test('that takes longer than its timeout stops its document, and has failed', async () => {
    const all = await started({
      fields: { timeout: '60s' },
      counting: async (_doc, step) => step.wait('rain', { for: '1h' }) as never,
    })
    await all.replica.runOnce()
    await lookAgain(all)
    expect(await latest(all)).toMatchObject({ phase: 'Running' })
    await runs().updateOne({ _id: all.id }, { $set: { startedAt: new Date(Date.now() - 61_000) } } as object)
    await lookAgain(all)
    expect(await latest(all)).toMatchObject({ phase: 'Failed', error: { name: 'RunTimeout' } })
    expect(await stored().findOne({})).toMatchObject({ lockedAt: new Date('9999-12-31') })
  })

  test('whose lock is freed while it starts its document stops that', async () => {
    const [began, freed] = [gate(), gate()]
    const nights = night.handle({ Counting: counted })
    const replica = new Replica({
      db: database.db,
      lifecycles: [nights],
      name: 'nights',
      logger: silentLogger,
      doorbell: 'off',
    })
    replicas.push(replica)
    await replica.prepare()
    const make = async (_args: unknown, run: { signal: AbortSignal }) => {
      // As if an earlier try had begun it.
      await nights.insert({ _id: `s@${due.toISOString()}`, day: 'x' })
      began.open()
      await freed.wait
      run.signal.throwIfAborted()
      return { day: 'x' }
    }
    const one = scheduler(database.db, { lockAtMostFor: '3s', tasks: { work: starts(nights, make as never) } })
    const due: Date = await dueSchedule(one, database.db)
    const working = one.replica.runOnce()
    await began.wait
    await database.db.collection('shedLock').deleteMany({})
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    freed.open()
    await working
    const [run] = await one.schedules.runs('s')
    expect(run).toMatchObject({ phase: 'Failed', error: { name: 'RunLockLost' } })
    expect(await stored().findOne({})).toMatchObject({ lockedAt: new Date('9999-12-31') })
  })

  describe('while the document before goes on', () => {
    test('a due time is Skipped, with who works on that', async () => {
      const all = await started({ counting: async (_doc, step) => step.wait('rain', { for: '1h' }) as never })
      await all.replica.runOnce()
      await stored().updateOne({ _id: all.id }, { $set: { lockedBy: 'nights~5f3a9c#7.1', lockedAt: new Date() } })
      await dueSince(database.db, 's', 500)
      await all.one.replica.runOnce()
      expect(await stored().countDocuments()).toBe(1)
      expect(await latest(all)).toMatchObject({
        phase: 'Skipped',
        reason: `overlap: night ${all.id} goes on (Counting, on nights~5f3a9c)`,
        overlap: { run: all.id, by: 'nights~5f3a9c' },
      })
    })

    test.each([
      ['ended', 1],
      ['ended', 2],
      ['started', 2],
    ] as const)('until %s, as many as maxInstances %d go on', async (until, maxInstances) => {
      const all = await started({ options: { until }, fields: { maxInstances } })
      for (let i = 1; i <= maxInstances; i += 1) {
        await dueSince(database.db, 's', 900 - 100 * i)
        await all.one.replica.runOnce()
      }
      expect(await stored().countDocuments()).toBe(maxInstances)
      expect(await latest(all)).toMatchObject({ phase: 'Skipped' })
      await all.replica.runOnce()
      await dueSince(database.db, 's', 100)
      await all.one.replica.runOnce()
      expect(await stored().countDocuments()).toBe(maxInstances + 1)
    })

    test('another is started all the same if that is wanted', async () => {
      const all = await started({ options: { whileOpen: 'start' } })
      await dueSince(database.db, 's', 500)
      await all.one.replica.runOnce()
      expect(await stored().countDocuments()).toBe(2)
    })

    test('one that was removed does not go on, be it still there to be told', async () => {
      const all = await started()
      await stored().updateOne({}, { $set: { phase: '$removed:night' } })
      await dueSince(database.db, 's', 500)
      await all.one.replica.runOnce()
      expect(await stored().countDocuments({ phase: 'Counting' })).toBe(1)
    })
  })

  describe('until it has started its document', () => {
    test('is over at once, and its document goes on without it', async () => {
      const all = await started({ options: { until: 'started' } })
      expect(await latest(all)).toMatchObject({ phase: 'Completed', result: { lifecycle: 'night', id: all.id } })
      await all.replica.runOnce()
      expect(await stored().findOne({})).toMatchObject({ phase: 'Counted' })
    })

    test('starts none twice: a run that is tried again finds its document', async () => {
      const all = await started({ options: { until: 'started', whileOpen: 'start' } })
      // As if its replica had died before it recorded the run.
      await runs().updateOne({ _id: all.id }, [
        { $set: { phase: 'Queued', lockedAt: new Date(0) } },
        { $unset: ['outcome', 'startedAt', 'completedAt', 'result'] },
      ])
      await all.one.replica.runOnce()
      expect(await latest(all)).toMatchObject({ phase: 'Completed', result: { lifecycle: 'night' } })
      expect(await stored().countDocuments()).toBe(1)
    })
  })

  describe('a backfill', () => {
    const range = { from: new Date('2025-01-01T00:30:00Z'), to: new Date('2025-01-01T03:30:00Z') }
    const hourly: Given['fields'] = { cron: '0 * 1-9 1 *' }

    test.each(['ended', 'started'] as const)(
      'until %s, begins the next one when the document has ended',
      async (until) => {
        const all = await started({ options: { until }, fields: hourly })
        await all.replica.runOnce()
        await all.one.replica.runOnce()
        await all.one.schedules.backfill('s', range)
        for (let i = 1; i <= 3; i += 1) {
          await lookAgain({ ...all, replica: all.one.replica })
          await all.one.replica.runOnce()
          expect(await stored().countDocuments({ phase: 'Counting' })).toBe(1)
          const open = until === 'ended' ? { Running: 1 } : {}
          expect(await all.one.schedules.backfillState('s')).toMatchObject({
            over: until === 'ended' ? i - 1 : i,
            counts: open,
          })
          await all.replica.runOnce()
        }
        await lookAgain(all)
        expect(await all.one.schedules.backfillState('s')).toMatchObject({
          condition: 'Done',
          counts: { Completed: 3 },
        })
        expect(await stored().countDocuments()).toBe(4)
      },
    )

    test.each([
      ['wait', { Queued: 1 }],
      ['skip', { Skipped: 3 }],
    ] as const)('that meets an open one will %s, as it was told', async (overlap, counts) => {
      const all = await started({ fields: hourly })
      await all.one.schedules.backfill('s', { ...range, overlap })
      for (let i = 1; i <= 4; i += 1) await all.one.replica.runOnce()
      expect(await all.one.schedules.backfillState('s')).toMatchObject({ overlap, counts })
      expect(await stored().countDocuments()).toBe(1)
    })

    test('refuses to be told something else', async () => {
      const all = await started({ fields: hourly })
      const wrong = all.one.schedules.backfill('s', { ...range, overlap: 'start' as never })
      await expect(wrong).rejects.toThrow("overlap: expected 'wait' or 'skip', got start")
    })
  })

  test.each<[string, () => unknown, object]>([
    ['waits for a promise', async () => ({ day: 'x' }), { phase: 'Running' }],
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
  ])('the function that makes the document: %s', async (_what, make, expected) => {
    const all = await started({ document: make })
    expect(await latest(all)).toMatchObject(expected)
    const [document, ...others] = await stored().find().toArray()
    expect(others).toEqual([])
    expect(document?.day).toBe('error' in expected ? undefined : 'x')
  })

  test('is refused without a lifecycle with handlers, with an unknown option, or inside of another task', async () => {
    expect(() => starts(night as never, () => ({ day: 'x' }) as never)).toThrow(InvalidTask)
    const nights = night.handle({ Counting: counted })
    expect(() => starts(nights, () => ({ day: 'x' }), { whileopen: 'skip' } as never)).toThrow(
      /unknown option 'whileopen'/,
    )
    expect(() => starts(nights, () => ({ day: 'x' }), { whileOpen: 'wait' as never })).toThrow(/'skip' or 'start'/)
    expect(() => starts(nights, () => ({ day: 'x' }), { until: 'done' as never })).toThrow(/'ended' or 'started'/)
    const inner = starts(nights, () => ({ day: 'x' }))
    await expect(inner({}, {} as never)).rejects.toThrow(/expected to be a schedule's task itself/)
    // @ts-expect-error a field is missing
    starts(nights, () => ({}))
  })
})
