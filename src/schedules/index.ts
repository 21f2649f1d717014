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
export type { SchedulePhase } from './decide.js'
export type { Json, Retry, ScheduleFields } from './definition/schedule-fields.js'
export type {
  Backfill,
  Edit,
  LastEnd,
  Overlap,
  Pause,
  RunDocument,
  RunError,
  RunLine,
  RunOutcome,
  ScheduleDocument,
  StartedDocument,
} from './documents.js'
export * from './errors.js'
export type { ObservedRun, RunEndReason, ScheduleObserver } from './observer.js'
export type { SchedulesOptions } from './options.js'
export type { PauseChange } from './pauses.js'
export type { LastSuccess, ScheduleCounts, ScheduleReports } from './reports.js'
export type {
  By,
  CancelRunOptions,
  NewSchedule,
  SchedulePauseOptions,
  ScheduleResumeOptions,
  TriggerOptions,
} from './schedule-owner-options.js'
export type {
  ListedPause,
  ListedSchedule,
  PausesOptions,
  RunsOptions,
  ScheduleListOptions,
  StoredRun,
  StoredSchedule,
} from './schedule-reader.js'
export { Schedules } from './schedules.js'
export { type StartsOptions, starts } from './starts.js'
export type { RunStatistics, StatisticsOf, StatisticsOptions } from './statistics.js'
export type { RunCallback, Task, TaskFunction, TaskRun, TaskWithCallbacks } from './tasks.js'
