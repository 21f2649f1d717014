import type { Duration } from '../../time/index.js'

/** A length of time in a schedule: a number of seconds (`300`), or with a unit (`'5m'`). */
export type Span = number | Duration

/** What goes into a document and comes back the same: no dates, no undefined, no class instances. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }

/** How failed runs are tried again. */
export interface Retry {
  /** Tries in all, the first one included: 1 to 100. Default 1: no retry. */
  readonly attempts?: number
  /** The pause after the first failure, doubled with each further one. Default 10 s. */
  readonly backOff?: Span
  /** The longest pause. Default 10 min. */
  readonly longest?: Span
}

/**
 * What a person or a program specifies of a schedule: the fields of its document that are the owner's. Exactly one of `cron`,
 * `interval` and `at`. Spans are seconds (`300`) or have a unit (`'5m'`).
 */
export interface ScheduleFields {
  /** The name of the task, as the replicas register it. */
  readonly task: string
  /** The arguments of the task: JSON. Default `{}`. */
  readonly args?: Json
  /** Five or six fields, or a macro. */
  readonly cron?: string
  /** The time between due times, counted from `startAt`, else from when the schedule was made. */
  readonly interval?: Span
  /** Once, at this time. */
  readonly at?: Date | string
  /** The zone of `cron`. Default UTC. */
  readonly timezone?: string
  /** false: nothing is run. Default true. */
  readonly isActive?: boolean
  /** Whether several missed due times become one run, for the latest. Default true. */
  readonly coalesce?: boolean
  /** Runs of this schedule at the same time, on all replicas together: 1 to 100. Default 1. */
  readonly maxInstances?: number
  /** A run that would start later than this after its due time is recorded as Missed; null: no limit. Default 300 s. */
  readonly misfireGraceTime?: Span | null
  /** Each run starts up to this much later than due, at random (but the same for all replicas). Default 0. */
  readonly jitter?: Span
  /** Nothing is due before. */
  readonly startAt?: Date | string | null
  /** Nothing is due after. */
  readonly endAt?: Date | string | null
  /** How a failed run is tried again. Default, also for null: it isn't. */
  readonly retry?: Retry | null
  /** How long one try may take; then its signal aborts and the try has failed. Default, and at most: 23 h. */
  readonly timeout?: Span | null
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

/** Those that decide when it runs: a change to one of them plans anew, from now on. */
export const TIMING_FIELDS = ['cron', 'interval', 'at', 'timezone', 'isActive', 'startAt', 'endAt'] as const

/** In the database: the owner's fields of a schedule as one object, without those that are missing, as `known` has them. */
export const OWNERS_FIELDS: Readonly<Record<string, string>> = Object.fromEntries(
  SCHEDULE_FIELDS.map((name) => [name, `$${name}`]),
)
