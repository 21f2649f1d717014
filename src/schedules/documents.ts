import type { RecordedError } from '../phases/index.js'
import type { Json, ScheduleFields } from './definition/schedule-fields.js'

/** Who changed what in a schedule; without `by` it was done in the database. */
export interface Edit {
  readonly at: Date
  readonly by?: string
  /** What was done: `upsert`, `pause`, `resume`; or `noticed`: done in the database. */
  readonly action: string
  readonly reason?: string
  /** Each changed field: before and after; absent: it wasn't there. */
  readonly changes?: Readonly<Record<string, { readonly from?: unknown; readonly to?: unknown }>>
}

export interface Pause {
  /** When it ends by itself; absent: when somebody resumes it. */
  readonly until?: Date
  readonly reason?: string
  readonly by?: string
  readonly at: Date
}

/** A schedule as it is stored: the owner's fields, and those that Phaselock keeps. */
export interface ScheduleDocument extends ScheduleFields {
  _id: string
  /** When it was last due. */
  lastRunAt?: Date | null
  /** When it is due next; null: not before it is changed. */
  nextRunAt?: Date | null
  paused?: Pause | null
  /** Why it can't run. */
  broken?: string | null
  /** Where its owner may have meant something else; it runs all the same. */
  warnings?: readonly string[] | null
  /** The owner's fields as they were when `nextRunAt` was planned: where they differ now, somebody has edited them. */
  known?: Readonly<Record<string, unknown>>
  /** The newest 50. */
  edits?: readonly Edit[]
}

/** One line of a run's log. */
export interface RunLine {
  readonly at: Date
  readonly message: string
  readonly fields?: Json
}

export interface RunError {
  readonly name: string
  readonly message: string
  readonly stack?: string
  readonly code?: string | number
  readonly causes?: NonNullable<RecordedError['causes']>
}

/** The run that is in the way of another. */
export interface Overlap {
  readonly run?: string
  readonly by?: string
  readonly since?: Date
}

export const RUN_OUTCOMES = ['Completed', 'Failed', 'Skipped', 'Missed'] as const
export type RunOutcome = (typeof RUN_OUTCOMES)[number]

/** One run of a schedule, `_id` `<schedule>@<due time>`. */
export interface RunDocument {
  _id: string
  schedule: string
  task: string
  args: Json
  scheduledFor: Date
  /** 'schedule': it was due; 'manual': somebody asked. */
  trigger: 'schedule' | 'manual'
  /** Of a manual run: who asked. */
  requestedBy?: string
  /** Other due times that this one stands for, too. */
  coalesced?: { readonly count: number; readonly since: Date; readonly isMore: boolean }
  /** How much later than due it was to start, by jitter. */
  jitterMs?: number
  /** If it starts after this it is Missed; null: no limit. */
  startBy?: Date | null
  maxInstances: number
  retry: { readonly attempts: number; readonly backOffMs: number; readonly longestMs: number }
  timeoutMs?: number | null
  /** The try that is running, or ran last; from 1. */
  attempt?: number
  /** Tries that ended with their replica. */
  lost?: number
  /** When a failed run is tried again. */
  retryAt?: Date | null
  startedAt?: Date
  /** The replica that runs it, or ran it last: its name. */
  by?: string
  lockFence?: number
  /** Stored before the callbacks run; the phase follows when they have. */
  outcome?: RunOutcome
  completedAt?: Date
  /** From startedAt to completedAt. */
  durationMs?: number
  counters?: Readonly<Record<string, number>>
  result?: Json
  error?: RunError | null
  /** Why it was Skipped or Missed. */
  reason?: string
  overlap?: Overlap
  log?: readonly RunLine[]
  /** Lines that were logged beyond what is kept. */
  logDropped?: number
  callbackError?: RunError
}

/** `<schedule>@<due time>`: the same on every replica, so that a due time has one run. */
export const runIdOf = (schedule: string, due: Date): string => `${schedule}@${due.toISOString()}`

/** An object without its undefined fields, which the driver would store as null. */
export const present = <T extends object>(fields: T): Present<T> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Present<T>

type Present<T> = { [K in keyof T as undefined extends T[K] ? never : K]: T[K] } & {
  [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>
}

/**
 * The server's time when this document was claimed: a claim sets `lockedAt` to it. It may be slightly behind (a queue, a
 * round trip), never ahead, unless the step follows another of the same lease.
 */
export function serverTime(claimed: object): Date {
  const { lockedAt } = claimed as { lockedAt?: unknown }
  if (lockedAt instanceof Date) return lockedAt
  throw new Error('expected a claimed document, but it has no lockedAt')
}
