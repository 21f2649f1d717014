import { describe, expect, test } from '@jest/globals'
import { MongoNetworkError } from 'mongodb'
import { starts } from '../../src/schedules/index.js'
import { counted, night, useStarted } from './started.js'
import { dueSchedule, dueSince } from './support.js'

describe('a run that starts a document', () => {
  const { database, scheduler, stored, runs, started, latest, lookAgain } = useStarted()
  /** As if a replica had claimed the run, and died. */
  const died = (id: string, claims: number) =>
    runs().updateOne({ _id: id }, {
      $set: { phase: 'Running', lockedBy: 'gone~1#1.1', lockedAt: new Date(Date.now() - 60_000) },
      ...{ $max: { 'progress.claims': claims }, $unset: { started: 1, 'progress.awaits': 1 } },
    } as object)

  describe('whose insert was executed, and its answer lost,', () => {
    const lost = async (insert: (doc: never) => Promise<unknown>, doc: never) => {
      await insert(doc)
      throw new MongoNetworkError('connection 3 to 10.0.0.7:27017 closed')
    }

    test('goes on with its document, and ends as that does', async () => {
      const all = await started({ insert: lost })
      expect(await latest(all)).toMatchObject({ phase: 'Running', started: { id: all.id } })
      await all.replica.runOnce()
      await all.one.replica.runOnce()
      expect(await latest(all)).toMatchObject({ phase: 'Completed', error: null })
    })

    test('goes on with it when the database is back, if that went away at the same moment', async () => {
      let isAway = false
      const all = await started({
        insert: async (insert, doc, nights) => {
          const { owner } = nights as { owner(): object }
          const away = () => {
            throw new MongoNetworkError('connect ECONNREFUSED 10.0.0.7:27017')
          }
          Object.assign(nights, { owner: () => (isAway ? away() : owner.call(nights)) })
          await insert(doc)
          isAway = true
          return away()
        },
      })
      const run = await runs().findOne({ _id: all.id })
      expect(run).toMatchObject({ phase: 'Running', attempt: 1, progress: { attempts: 0 } })
      expect(run).not.toHaveProperty('started')
      isAway = false
      await lookAgain(all)
      await all.one.replica.runOnce()
      expect(await latest(all)).toMatchObject({ phase: 'Completed', error: null })
    })

    test('is Completed where it was to start it only', async () => {
      const all = await started({ insert: lost, options: { until: 'started' } })
      expect(await latest(all)).toMatchObject({ phase: 'Completed', result: { lifecycle: 'night', id: all.id } })
    })
  })

  test('that has lost its replicas again and again goes on with a document that one of them has started', async () => {
    const all = await started()
    await died(all.id, 5)
    await all.one.replica.runOnce()
    expect(await latest(all)).toMatchObject({ phase: 'Running', started: { id: all.id } })
    await all.replica.runOnce()
    await all.one.replica.runOnce()
    expect(await latest(all)).toMatchObject({ phase: 'Completed' })
  })

  test('that lost its replica and its lock before it started one starts none beside that of another run', async () => {
    const all = await started()
    await died(all.id, 1)
    await stored().deleteMany({})
    await database.db.collection('shedLock').deleteMany({})
    const dead = (await runs().findOneAndUpdate({ _id: all.id }, { $set: { lockedAt: new Date() } } as object))!
    await dueSince(database.db, 's', 500)
    await all.one.replica.runOnce()
    expect(await stored().countDocuments()).toBe(1)
    await runs().updateOne({ _id: dead._id }, { $set: { lockedAt: new Date(0) } } as object)
    await all.one.replica.runOnce()
    expect(await stored().countDocuments()).toBe(1)
    expect(await runs().findOne({ _id: dead._id })).toMatchObject({
      phase: 'Failed',
      reason: expect.stringMatching(/^no further try: overlap: night s@.* goes on/),
    })
  })

  test('is in the way of others also while it is on its way to be asked to stop', async () => {
    const all = await started({ counting: async (_doc, step) => step.wait('rain', { for: '1h' }) as never })
    // Where a cancel leaves a run that a replica was looking at.
    await runs().updateOne({ _id: all.id }, { $set: { phase: 'Queued', lockedAt: new Date() } } as object)
    await dueSince(database.db, 's', 500)
    await all.one.replica.runOnce()
    expect(await stored().countDocuments()).toBe(1)
    expect(await latest(all)).toMatchObject({ phase: 'Skipped', overlap: { run: all.id } })
    await lookAgain(all)
    expect(await runs().findOne({ _id: all.id })).toMatchObject({ phase: 'Running' })
  })

  test('whose lifecycle is attached to no database fails, and says so', async () => {
    const one = scheduler(database.db, {
      tasks: { work: starts(night.handle({ Counting: counted }), () => ({ day: 'x' }), { whileOpen: 'start' }) },
    })
    await dueSchedule(one, database.db)
    await one.replica.runOnce()
    expect((await one.schedules.runs('s'))[0]).toMatchObject({ phase: 'Failed', error: { name: 'NotAttached' } })
  })
})
