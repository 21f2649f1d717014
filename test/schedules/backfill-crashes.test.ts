import { expect, test } from '@jest/globals'
import type { Document } from 'mongodb'
import type { ScheduleFields } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'
import { randomNumbers } from '../support/random.js'
import { HOURLY, passForRuns, useSchedulers } from './support.js'

const at = (hour: number) => new Date(Date.UTC(2026, 0, 1, hour))

const database = useDatabase()
const scheduler = useSchedulers()
const runs = () => database.db.collection<Document & { _id: string }>('runs')

test.each([1, 2, 3, 4])(
  'a backfill: crashes after a run’s outcome, two replicas, two at a time: each due time once (seed %i)',
  async (seed) => {
    const random = randomNumbers(seed)
    let [running, most] = [0, 0]
    const ran: string[] = []
    const tasks = {
      work: async (_args: unknown, { scheduledFor }: { scheduledFor: Date }) => {
        running += 1
        most = Math.max(most, running)
        await new Promise(setImmediate)
        ran.push(scheduledFor.toISOString())
        running -= 1
      },
    }
    const [one, two] = [scheduler(database.db, { tasks }), scheduler(database.db, { tasks })]
    await one.schedules.upsert('s', { task: 'work', ...HOURLY, maxInstances: 2 } as ScheduleFields)
    await one.schedules.backfill('s', { from: at(0), to: at(23), concurrency: 2 })
    for (let i = 0; i < 100; i += 1) {
      await Promise.all([one.replica.runOnce(), two.replica.runOnce()])
      expect((await one.schedules.backfillState('s'))!.counts.Queued ?? 0).toBeLessThanOrEqual(2)
      const over = await runs().find({ phase: 'Completed' }).toArray()
      if (over.length === 24) break
      // As after a crash between the outcome, the follower and the phase: with the follower, or without it.
      const crashed = over[Math.floor(random() * over.length)]
      if (crashed && random() < 0.5) {
        const set = { phase: 'Running', lockedAt: new Date(1_000), lockedBy: 'gone~1#1.1' }
        await runs().updateOne({ _id: crashed._id }, { $set: set })
        if (random() < 0.5) await runs().deleteMany({ 'backfill.after': crashed._id, phase: 'Queued' })
      }
      await passForRuns(database.db, 2_100)
    }
    expect(ran.sort()).toEqual(Array.from({ length: 24 }, (_, hour) => at(hour).toISOString()))
    expect(most).toBeLessThanOrEqual(2)
  },
)
