/**
 * Cron schedules, intervals and one-off runs, as documents that the replicas share.
 *
 * @example
 * ```ts
 * import { Replica } from 'phaselock'
 * import { connectDatabase } from 'phaselock/database'
 * import { Schedules } from 'phaselock/schedules'
 *
 * const { db } = await connectDatabase()
 * const schedules = new Schedules({
 *   db,
 *   tasks: { cleanup: async (args, run) => console.log(args, run.signal.aborted) },
 * })
 * const replica = new Replica({ db, lifecycles: schedules.lifecycles })
 * await replica.start()
 * await schedules.upsert('nightly-cleanup', { task: 'cleanup', cron: '0 3 * * *' })
 * ```
 * @packageDocumentation
 */
export type { BackfillOptions, BackfillPreview, BackfillState } from './backfill.js'
export { Cron } from './cron/cron.js'
export { InvalidCron } from './cron/invalid-cron.js'
export { UnknownTimeZone } from './cron/zone.js'
export type { Json } from './definition/schedule-fields.js'
export type { Backfill, Pause, RunDocument, RunError, RunOutcome, ScheduleDocument } from './documents.js'
export * from './errors.js'
export type { ScheduleObserver } from './observer.js'
export type { SchedulesOptions } from './options.js'
export type { By, NewSchedule } from './schedule-owner-options.js'
export type { ListedPause, ListedSchedule, StoredRun, StoredSchedule } from './schedule-reader.js'
export { Schedules } from './schedules.js'
export { starts } from './starts.js'
export type { RunInProgress, RunStatistics } from './statistics.js'
export type { Task, TaskFunction, TaskRun, TaskWithCallbacks } from './tasks.js'
