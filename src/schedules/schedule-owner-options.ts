import type { Json, ScheduleFields } from './definition/schedule-fields.js'

/** A schedule as given to `upsert`. */
export type NewSchedule = ScheduleFields

/** The options of all methods that edit schedules. */
export interface By {
  /** The author, recorded in the schedule's edits. */
  readonly by?: string | undefined
}

/** The options of `pause` and `pauseAll`. */
export interface SchedulePauseOptions extends By {
  /** When the pause ends. Default: when a user resumes the schedule. */
  readonly until?: Date | undefined
  /** The reason, for people: kept in the schedule's `paused` and `edits`, and shown by runs that it skips. */
  readonly reason?: string | undefined
}

/** The options of `resume` and `resumeAll`. */
export interface ScheduleResumeOptions extends By {
  /** The author of the pause to end. Default: `by`, or the author of the only one there is. */
  readonly of?: string | undefined
}

/** The options of `run`; `by` is kept in the run's `requestedBy`. */
export interface TriggerOptions extends By {
  /** Arguments that replace the schedule's own. */
  readonly args?: Json | undefined
}

/** The options of `cancelRun`. */
export interface CancelRunOptions {
  /** The person or program that wants it to stop. */
  readonly by: string
  /** The reason, for people: at most 500 characters. */
  readonly reason?: string | undefined
}
