import type { Duration } from '../../time/index.js'

/** A value that a document stores and returns unchanged: no dates, no undefined, no class instances. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }

/** The retry policy of failed runs. */
export interface Retry {
  /** The number of tries, including the first one: 1 to 100. Default 1: no retry. */
  readonly attempts?: number
  /** The pause after the first failure, doubled with each further one. Default 10 s. */
  readonly backOff?: Duration
  /** The longest pause. Default 10 min. */
  readonly longest?: Duration
}

/**
 * The fields of a schedule's document that its owner specifies. Exactly one of `cron`, `interval` and `at` is required. A bare
 * number as a duration is refused; one that an earlier version, or a client of the database, has stored counts as seconds.
 */
export interface ScheduleFields {
  /** The name under which the replicas register the task. */
  readonly task: string
  /** The arguments of the task: JSON. Default `{}`. */
  readonly args?: Json
  /** A cron expression of five or six fields, or a macro. */
  readonly cron?: string
  /** The time between due times, counted from `startAt`, or else from the creation of the schedule. */
  readonly interval?: Duration
  /** The time of a single run. */
  readonly at?: Date | string
  /** The zone of `cron`. Default UTC. */
  readonly timezone?: string
  /** false: nothing runs. Default true. */
  readonly isActive?: boolean
  /** If true, several missed due times become one run, for the latest. Default true. */
  readonly coalesce?: boolean
  /** The number of runs of this schedule at the same time, on all replicas together: 1 to 100. Default 1. */
  readonly maxInstances?: number
  /** A run that would start later than this after its due time is recorded as Missed; null: no limit. Default 300 s. */
  readonly misfireGraceTime?: Duration | null
  /** The longest random delay after the due time; the same on all replicas for each run. Default '0s'. */
  readonly jitter?: Duration
  /** The time before which nothing is due. */
  readonly startAt?: Date | string | null
  /** The time after which nothing is due. */
  readonly endAt?: Date | string | null
  /** The retry policy of failed runs. Default, also for null: no retry. */
  readonly retry?: Retry | null
  /** The longest time of one try; then its signal aborts and the try has failed. Default, and at most: 23 h. */
  readonly timeout?: Duration | null
}

/** The fields by name, in the order in which they are compared and shown. */
export const SCHEDULE_FIELDS = [
  'task',
  'args',
  'cron',
  'interval',
  'at',
  'timezone',
  'isActive',
  'coalesce',
  'maxInstances',
  'misfireGraceTime',
  'jitter',
  'startAt',
  'endAt',
  'retry',
  'timeout',
] as const satisfies readonly (keyof ScheduleFields)[]

/** The fields that decide when it runs: a change to one of them replans it from now on. */
export const TIMING_FIELDS = ['cron', 'interval', 'at', 'timezone', 'isActive', 'startAt', 'endAt'] as const

/** An aggregation expression for the owner's fields of a schedule as one object, without those that are missing, as `known` has them. */
export const OWNERS_FIELDS: Readonly<Record<string, string>> = Object.fromEntries(
  SCHEDULE_FIELDS.map((name) => [name, `$${name}`]),
)
