import { afterEach } from '@jest/globals'
import type { Db } from 'mongodb'
import { Replica } from '../../src/index.js'
import { type ScheduleFields, Schedules, type SchedulesOptions } from '../../src/schedules/index.js'
import { recordingLogger } from '../support/thing.js'

/** In the first days of a year: a full hour that passes during a test would be due, and goes before a backfill. */
export const HOURLY: Partial<ScheduleFields> = { cron: '0 * 1-9 1 *' }

/** Schedules and a replica that runs them, ticked by hand. */
export interface Scheduler {
  schedules: Schedules<any>
  replica: Replica
  logger: ReturnType<typeof recordingLogger>
}

const replicas: Replica[] = []

/** Makes schedulers that end with their test. */
export function useSchedulers(): (db: Db, options?: Partial<SchedulesOptions<any>>) => Scheduler {
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map((replica) => replica.stop()))
  })
  return (db, options = {}) => {
    const logger = recordingLogger()
    const schedules = new Schedules({ db, logger, ...options })
    const replica = new Replica({
      db,
      lifecycles: schedules.lifecycles,
      name: options.name,
      logger,
      grace: '100ms',
      doorbell: 'off',
    })
    replicas.push(replica)
    return { schedules, replica, logger }
  }
}

/** Lets a schedule have come due so long ago, whatever it was planned for; returns that due time. */
export async function dueSince(db: Db, id: string, ms: number): Promise<Date> {
  const updated = await db
    .collection<{ _id: string; nextRunAt: Date }>('schedules')
    .findOneAndUpdate({ _id: id }, [{ $set: { nextRunAt: { $subtract: ['$$NOW', ms] }, lockedAt: new Date(0) } }], {
      returnDocument: 'after',
    })
  return updated!.nextRunAt
}

/** A schedule that has been planned and is due now; returns its due time. */
export async function dueSchedule(
  { schedules, replica }: Scheduler,
  db: Db,
  fields: Partial<ScheduleFields> = {},
  id = 's',
): Promise<Date> {
  const timing = (fields.at ?? fields.interval ?? fields.cron) ? {} : { cron: '0 0 1 1 *' }
  await schedules.upsert(id, { task: 'work', ...timing, ...fields } as ScheduleFields)
  await replica.runOnce()
  return dueSince(db, id, 1_000)
}

/** Lets time pass for runs: retries come due, leases expire. */
export async function passForRuns(db: Db, ms: number): Promise<void> {
  const back = (field: string) => ({
    $cond: [
      { $and: [{ $eq: [{ $type: `$${field}` }, 'date'] }, { $gt: [`$${field}`, new Date(0)] }] },
      { $subtract: [`$${field}`, ms] },
      `$${field}`,
    ],
  })
  await db
    .collection('runs')
    .updateMany({ phase: { $in: ['Queued', 'Running'] } }, [
      { $set: { lockedAt: back('lockedAt'), retryAt: back('retryAt') } },
    ])
}
