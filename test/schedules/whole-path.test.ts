import { describe, expect, test } from '@jest/globals'
import { Replica } from '../../src/index.js'
import { Schedules } from '../../src/schedules/index.js'
import { useDatabase } from '../support/database.js'
import { recordingLogger } from '../support/thing.js'
import { dueSince } from './support.js'

describe('a schedule from its definition to its run', () => {
  const database = useDatabase()

  test('definition -> next run -> run -> task -> Completed', async () => {
    const ran: unknown[] = []
    const logger = recordingLogger()
    const schedules = new Schedules({
      db: database.db,
      logger,
      name: 'pod-1',
      context: async () => ({ client: 'a client' }),
      tasks: {
        'repository-sync': async (args, run) => {
          ran.push([args, run.context, run.scheduledFor, run.attempt])
          run.log('synced', { repository: args.repository })
          run.count('filesProcessed', 3)
          run.count('filesProcessed')
          return { done: true }
        },
      },
    })
    const replica = new Replica({ db: database.db, lifecycles: schedules.lifecycles, logger, doorbell: 'off' })
    expect(
      await schedules.upsert('repo_sync_42', {
        task: 'repository-sync',
        args: { repository: 42 },
        cron: '0 0 1 1 *',
        timezone: 'Asia/Seoul',
      }),
    ).toBe('created')
    await replica.runOnce()
    const planned = await schedules.get('repo_sync_42')
    expect(planned).toMatchObject({ phase: 'Active', isActive: true, task: 'repository-sync' })
    expect(planned?.nextRunAt?.toISOString()).toMatch(/-12-31T15:00:00.000Z$/)
    expect(planned!.lockedAt!.getTime() + 30_000).toBeGreaterThanOrEqual(planned!.nextRunAt!.getTime())
    expect(ran).toEqual([])

    const due = await dueSince(database.db, 'repo_sync_42', 2_000)
    await replica.runOnce()
    expect(ran).toEqual([[{ repository: 42 }, { client: 'a client' }, due, 1]])
    const [run] = await schedules.runs('repo_sync_42')
    expect(run).toMatchObject({
      _id: `repo_sync_42@${due.toISOString()}`,
      phase: 'Completed',
      outcome: 'Completed',
      schedule: 'repo_sync_42',
      trigger: 'schedule',
      by: 'pod-1',
      attempt: 1,
      counters: { filesProcessed: 4 },
      result: { done: true },
      error: null,
    })
    expect(run!.log).toMatchObject([{ message: 'synced', fields: { repository: 42 } }])
    expect(run!.completedAt!.getTime() - run!.startedAt!.getTime()).toBe(run!.durationMs)
    const after = await schedules.get('repo_sync_42')
    expect(after?.lastRunAt).toEqual(due)
    expect(after!.nextRunAt!.getTime()).toBeGreaterThan(due.getTime())
    const lock = await database.db
      .collection<{ _id: string; lockUntil: Date; lockedAt: Date }>('shedLock')
      .findOne({ _id: 'scheduler_lock:repo_sync_42' })
    expect(lock!.lockUntil.getTime()).toBeLessThanOrEqual(lock!.lockedAt.getTime() + 900_000) // freed, long before its half hour
    await replica.stop()
  })
})
