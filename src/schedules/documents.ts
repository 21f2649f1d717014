import type { RecordedError } from '../phases/index.js'
import type { Json, ScheduleFields } from './definition/schedule-fields.js'

/** One change of a schedule. */
export interface Edit {
  /** When it was made, or noticed, by the server's clock. */
  readonly at: Date
  /** The author, if the caller named one; absent for an edit made in the database. */
  readonly by?: string
  /** The action: `created`, `upsert`, `pause`, `resume`; or `noticed` for a change made in the database. */
  readonly action: string
  /** The reason of a pause, as given. */
  readonly reason?: string
  /** The changed fields, by name. */
  readonly changes?: Readonly<
    Record<
      string,
      {
        /** The value before; absent if there was no such field. A value of more than 10,000 characters is cut. */
        readonly from?: unknown
        /** The value after; absent if the field was removed. Cut likewise. */
        readonly to?: unknown
      }
    >
  >
}

/** A schedule's pause, as `pause` stores it. If you write it by hand, `true` is enough. */
export interface Pause {
  /** When it ends; absent if it lasts until a user resumes the schedule. */
  readonly until?: Date
  /** The reason, for people; runs that it skips show it. */
  readonly reason?: string
  /** The author of the pause, if the caller named one. */
  readonly by?: string
  /** When it was paused, by the server's clock. */
  readonly at: Date
}

/** A backfill, as its schedule keeps it until the next one. */
export interface Backfill {
  /** The id that distinguishes it from others: `bf4f2a9c1b`. */
  readonly id: string
  /** The first due time that it may run. */
  readonly from: Date
  /** The last due time that it may run. */
  readonly to: Date
  /** The due times that run again although a run for them exists; absent: only those whose run never began. */
  readonly again?: 'failed' | 'all'
  /** The number of runs at the same time. */
  readonly concurrency: number
  /** The behavior of its runs while another run of the schedule is in progress; absent: they wait. */
  readonly overlap?: 'wait' | 'skip'
  /** The schedule's fields when the backfill was started: later edits don't change it. */
  readonly fields: Readonly<Record<string, unknown>>
  /** The time from which an interval counts. */
  readonly anchor: Date
  /** The number of due times to run, counted when the backfill was started. */
  readonly runs: number
  /** The person or program that started it. */
  readonly by?: string
  /** The reason. */
  readonly why?: string
  /** When it was started, by the server's clock. */
  readonly at: Date
  /** True once no due time is left to begin. */
  readonly allBegun?: boolean
  /** When it was aborted: it begins no further run since then. */
  readonly abortedAt?: Date
}

/** The latest run of a schedule with a given outcome, ordered by when runs ended. */
export interface LastEnd {
  /** The run's `_id`. */
  readonly run: string
  /** When it ended, by the server's clock. */
  readonly at: Date
  /** When it was due. */
  readonly scheduledFor: Date
  /** The time that it took, in ms; absent if it never started. */
  readonly durationMs?: number
  /** The error of a Failed run: its name, and at most 500 characters of its message; absent if there is no error. */
  readonly error?: { readonly name: string; readonly message: string }
}

/** A schedule as stored: the owner's fields, and those that Phaselock keeps. */
export interface ScheduleDocument extends ScheduleFields {
  /** The schedule's id, a string of 1 to 200 characters. */
  _id: string
  /** When it was last due, whatever the outcome. */
  lastRunAt?: Date | null
  /** When a run of it was last Completed; absent if none was. */
  lastSuccessAt?: Date
  /** The run that was Completed last, whatever triggered it. */
  lastSuccess?: LastEnd
  /** The run that Failed last. */
  lastFailure?: LastEnd
  /** When it is due next; null: not before it is changed. */
  nextRunAt?: Date | null
  /** Nothing runs while this is here and its `until` hasn't passed: of several people's pauses the one that lasts longest. */
  paused?: Pause | null
  /** All pauses, one for each person; they count while `paused` is one of them. */
  pauses?: readonly Pause[] | null
  /** The reason why it can't run. */
  broken?: string | null
  /** Possible mistakes of its owner; the schedule runs all the same. */
  warnings?: readonly string[] | null
  /** The owner's fields when `nextRunAt` was planned: a difference from the present ones means that the schedule was edited. */
  known?: Readonly<Record<string, unknown>>
  /** The owner's fields from which `nextRunAt` was planned, if `upsert` has replaced them since and no replica has replanned it yet. */
  superseded?: { readonly fields: Readonly<Record<string, unknown>>; readonly at: Date } | null
  /**
   * Set after the server's clock has stepped back: the end of the range of times that repeats, and the suffix of the `_id`s of their runs.
   */
  repeats?: { readonly until: Date; readonly mark: string } | null
  /** The newest 50 edits. */
  edits?: readonly Edit[]
  /** Its latest backfill. */
  backfill?: Backfill | null
}

/** One line of a run's log. */
export interface RunLine {
  /** When it was logged: the server's time, carried on by the replica's clock. */
  readonly at: Date
  /** At most 1,000 characters. */
  readonly message: string
  /** The fields that the task gave with it; '(not JSON, or too large)' in place of a value that isn't JSON of at most 4 KB. */
  readonly fields?: Json
}

/** An error as stored in a run. */
export interface RunError {
  /** Its class, such as 'TypeError'; at most 200 characters. */
  readonly name: string
  /** At most 2,000 characters. */
  readonly message: string
  /** At most 4,000 characters. */
  readonly stack?: string
  /** The code that libraries and systems set, such as `ECONNREFUSED`. */
  readonly code?: string | number
  /** Its `cause`, the cause's own cause, and so on; for an AggregateError also its `errors`. At most 8. */
  readonly causes?: NonNullable<RecordedError['causes']>
}

/** The run that blocks another one. */
export interface Overlap {
  /**
   * Its `_id`, or a digest of one that is too long for a lock. Absent, like the other fields, if the lock had been freed before it was
   * looked up.
   */
  readonly run?: string
  /** The process that runs it, as in `lockedBy`: its name, made unique per start. */
  readonly by?: string
  /** When it took the lock, in the server's time. */
  readonly since?: Date
}

/** The document that a run has started, as recorded in the run. */
export interface StartedDocument {
  /** The lifecycle of the document. */
  readonly lifecycle: string
  /** Its `_id`, the same as the run's: `<schedule>@<due time>`. */
  readonly id: string
}

export const RUN_OUTCOMES = ['Completed', 'Failed', 'Skipped', 'Missed'] as const
/** The outcome of a run. Skipped and Missed ones never started. */
export type RunOutcome = (typeof RUN_OUTCOMES)[number]

/** One run of a schedule, `_id` `<schedule>@<due time>`. */
export interface RunDocument {
  /** `repo_sync_42@2026-11-21T06:00:00.000Z`. */
  _id: string
  /** The schedule's `_id`. It may have been deleted since. */
  schedule: string
  /** The name of the task, taken from the schedule when the run was due. */
  task: string
  /** The arguments of the task. */
  args: Json
  /** When it was due, without jitter; for a manual run, when it was requested. */
  scheduledFor: Date
  /** The trigger: 'schedule' if it was due, 'manual' if it was requested, 'backfill' if all due times of a range were requested. */
  trigger: 'schedule' | 'manual' | 'backfill'
  /**
   * For a run of a backfill: the backfill's id, the run whose end started this one, and the behavior while another run of the
   * schedule is in progress.
   */
  backfill?: { readonly id: string; readonly after?: string; readonly overlap?: 'wait' | 'skip' }
  /** For a manual run and a backfill: the person or program that requested it. */
  requestedBy?: string
  /** Other due times that this run also stands for. */
  coalesced?: {
    /** The number of them; if `isMore`, the number that were counted. */
    readonly count: number
    /** The first of them. */
    readonly since: Date
    /** True if there were too many to count: more than 300 due times in all. */
    readonly isMore: boolean
  }
  /** The delay that jitter adds to the due time. */
  jitterMs?: number
  /** The latest start; a run that would start later is Missed. null: no limit. */
  startBy?: Date | null
  /** The schedule's `maxInstances` when the run was due: the number of its runs that may be in progress at the same time. */
  maxInstances: number
  /** The schedule's retry policy when the run was due. */
  retry: {
    /** The number of tries, including the first one. */
    readonly attempts: number
    /** The pause after the first failure, doubled with each further one. */
    readonly backOffMs: number
    /** The longest pause. */
    readonly longestMs: number
  }
  /** The longest time of one try; null: 23 h. */
  timeoutMs?: number | null
  /** The try that is running, or ran last; from 1. */
  attempt?: number
  /** The number of tries that ended with their replica. */
  lost?: number
  /** When a failed run is tried again. */
  retryAt?: Date | null
  /** When its first try began, in the server's time; absent if none has begun. */
  startedAt?: Date
  /** The name of the replica that runs it, or ran it last. */
  by?: string
  /** The fence of the lock that its latest try ran under: the task's `run.fence`. */
  lockFence?: number
  /**
   * The document that it has started, and whose end it takes over (`starts`); absent if it runs its task, or hasn't started a document yet.
   */
  started?: StartedDocument
  /** The request to its document to stop; once the document has stopped, the run is Failed with this reason. */
  stopping?: {
    /** The reason as observers of the run get it. */
    readonly why: 'cancelled' | 'timeout' | 'lockLost'
    /** The author of the request. */
    readonly by: string
    /** The reason, for the document's history. */
    readonly reason: string | null
    /** The error that the run then gets. */
    readonly error: RunError
  }
  /** The outcome, stored before the callbacks run; the phase follows after them. */
  outcome?: RunOutcome
  /** When it ended: the server's time, carried on by the replica's clock. */
  completedAt?: Date
  /** The time from startedAt to completedAt. */
  durationMs?: number
  /** The totals of the latest try's `run.count`, by counter: at most 100 of them. */
  counters?: Readonly<Record<string, number>>
  /** The value that the task returned; absent if it returned nothing, or a value that isn't JSON of at most 64 KB (see `notKept`). */
  result?: Json
  /** The results and counters of its latest try that couldn't be kept, with the reasons. The first ten. */
  notKept?: readonly string[]
  /** The error of its latest try; null if it succeeded. */
  error?: RunError | null
  /** The reason why it was Skipped or Missed. */
  reason?: string
  /** The holder of its lock, if that is why it was Skipped or has Failed. */
  overlap?: Overlap
  /** The log lines of its tries: the first 50 and the latest 150. */
  log?: readonly RunLine[]
  /** The number of logged lines that were not kept. */
  logDropped?: number
  /** The error that its callback threw: the outcome stands all the same. */
  callbackError?: RunError
}

/** The id of a run, `<schedule>@<due time>`: the same on every replica, so that a due time has one run. */
export const runIdOf = (schedule: string, due: Date): string => `${schedule}@${due.toISOString()}`

/** An object without its undefined fields, which the driver would store as null. */
export const present = <T extends object>(fields: T): Present<T> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Present<T>

type Present<T> = { [K in keyof T as undefined extends T[K] ? never : K]: T[K] } & {
  [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>
}

/** A stored date; undefined: it isn't one. */
export const dateOf = (value: unknown): Date | undefined =>
  value instanceof Date && !Number.isNaN(value.getTime()) ? value : undefined

/**
 * The server's time when this document was claimed: a claim sets `lockedAt` to it. It may be slightly behind (a queue, a round trip). It is
 * never ahead, unless the step follows another of the same lease.
 */
export function serverTime(claimed: object): Date {
  const { lockedAt } = claimed as { lockedAt?: unknown }
  if (lockedAt instanceof Date) return lockedAt
  throw new Error('expected a claimed document, but it has no lockedAt')
}
