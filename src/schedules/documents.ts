import type { RecordedError } from '../phases/index.js'
import type { Json, ScheduleFields } from './definition/schedule-fields.js'

/** Who changed what in a schedule. */
export interface Edit {
  /** When it was done, or noticed, by the server's clock. */
  readonly at: Date
  /** Who did it, if the caller said so; an edit made in the database has none. */
  readonly by?: string
  /** What was done: `created`, `upsert`, `pause`, `resume`; or `noticed`: done in the database. */
  readonly action: string
  /** Of a pause: what was given as its reason. */
  readonly reason?: string
  /** Each changed field, by its name. */
  readonly changes?: Readonly<
    Record<
      string,
      {
        /** Its value before; absent: it wasn't there. One of more than 10,000 characters is cut. */
        readonly from?: unknown
        /** Its value since; absent: it was removed. Cut likewise. */
        readonly to?: unknown
      }
    >
  >
}

/** A schedule's pause, as `pause` stores it; written by hand, `true` will do. */
export interface Pause {
  /** When it ends by itself; absent: when somebody resumes it. */
  readonly until?: Date
  /** Why, for people: runs that it skips show it. */
  readonly reason?: string
  /** Who paused it, if the caller said so. */
  readonly by?: string
  /** When it was paused, by the server's clock. */
  readonly at: Date
}

/** A backfill as its schedule keeps it, until the next one. */
export interface Backfill {
  /** Told apart from others by it: `bf4f2a9c1b`. */
  readonly id: string
  /** The first due time that it may run. */
  readonly from: Date
  /** The last one. */
  readonly to: Date
  /** Which due times run again; absent: only those without a run that has begun. */
  readonly again?: 'failed' | 'all'
  /** Runs at the same time. */
  readonly concurrency: number
  /** What a run of it does where another one of the schedule goes on; absent: it waits. */
  readonly overlap?: 'wait' | 'skip'
  /** The schedule's fields as they were when it was begun: later edits don't change it. */
  readonly fields: Readonly<Record<string, unknown>>
  /** What an interval counts from. */
  readonly anchor: Date
  /** How many due times it was to run when it was begun. */
  readonly runs: number
  /** Who began it. */
  readonly by?: string
  /** Why. */
  readonly why?: string
  /** When it was begun, by the server's clock. */
  readonly at: Date
  /** No due time is left that hasn't begun. */
  readonly allBegun?: boolean
  /** Since when it begins no further run. */
  readonly abortedAt?: Date
}

/** The run of a schedule that has ended in some way last, by the time when it ended. */
export interface LastEnd {
  /** Its `_id`. */
  readonly run: string
  /** When it ended, by the server's clock. */
  readonly at: Date
  /** When it was due. */
  readonly scheduledFor: Date
  /** How long it took, in ms; absent: it never started. */
  readonly durationMs?: number
  /** Of one that has Failed: the name of its error, and at most 500 characters of its message; absent: it has none. */
  readonly error?: { readonly name: string; readonly message: string }
}

/** A schedule as it is stored: the owner's fields, and those that Phaselock keeps. */
export interface ScheduleDocument extends ScheduleFields {
  /** The schedule's id, a string of 1 to 200 characters. */
  _id: string
  /** When it was last due, however that ended. */
  lastRunAt?: Date | null
  /** When a run of it was last Completed; absent: none was. */
  lastSuccessAt?: Date
  /** The run that was Completed last, whatever had asked for it. */
  lastSuccess?: LastEnd
  /** The run that has Failed last. */
  lastFailure?: LastEnd
  /** When it is due next; null: not before it is changed. */
  nextRunAt?: Date | null
  /** Nothing runs while this is here and its `until` hasn't passed. */
  paused?: Pause | null
  /** Why it can't run. */
  broken?: string | null
  /** Where its owner may have meant something else; it runs all the same. */
  warnings?: readonly string[] | null
  /** The owner's fields as they were when `nextRunAt` was planned: where they differ now, somebody has edited them. */
  known?: Readonly<Record<string, unknown>>
  /** The owner's fields from which `nextRunAt` was planned, where `upsert` has replaced them since and nobody has planned anew yet. */
  superseded?: { readonly fields: Readonly<Record<string, unknown>>; readonly at: Date } | null
  /** After the server's clock has stepped back: until when times come a second time, and what the `_id`s of their runs end with. */
  repeats?: { readonly until: Date; readonly mark: string } | null
  /** The newest 50. */
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
  /** What the task gave with it; '(not JSON, or too large)' in place of what isn't JSON of at most 4 KB. */
  readonly fields?: Json
}

/** An error as a run keeps it. */
export interface RunError {
  /** Its class, such as 'TypeError'; at most 200 characters. */
  readonly name: string
  /** At most 2,000 characters. */
  readonly message: string
  /** At most 4,000 characters. */
  readonly stack?: string
  /** As libraries and systems set it: `ECONNREFUSED`. */
  readonly code?: string | number
  /** Its `cause`, the cause's own, and so on; of an AggregateError, its `errors` too. At most 8. */
  readonly causes?: NonNullable<RecordedError['causes']>
}

/** The run that is in the way of another. */
export interface Overlap {
  /** Its `_id`, or a digest of one that is too long for a lock. Absent, as the rest, if the lock was free again by then. */
  readonly run?: string
  /** The process that runs it, as it is in `lockedBy`: its name, made unique per start. */
  readonly by?: string
  /** Since when it has held the lock, in the server's time. */
  readonly since?: Date
}

/** What a task that starts documents leaves in its run. */
export interface StartedDocument {
  /** The lifecycle of the document. */
  readonly lifecycle: string
  /** Its `_id`: that of the run, `<schedule>@<due time>`. */
  readonly id: string
}

export const RUN_OUTCOMES = ['Completed', 'Failed', 'Skipped', 'Missed'] as const
/** How a run ended. Skipped and Missed ones never started. */
export type RunOutcome = (typeof RUN_OUTCOMES)[number]

/** One run of a schedule, `_id` `<schedule>@<due time>`. */
export interface RunDocument {
  /** `repo_sync_42@2026-11-21T06:00:00.000Z`. */
  _id: string
  /** The schedule's `_id`. It may have been deleted since. */
  schedule: string
  /** The name of the task, as its schedule had it when the run was due. */
  task: string
  /** What the task gets. */
  args: Json
  /** When it was due, without jitter; of a manual run: when it was asked for. */
  scheduledFor: Date
  /** 'schedule': it was due; 'manual': somebody asked; 'backfill': somebody asked for all due times of a range. */
  trigger: 'schedule' | 'manual' | 'backfill'
  /** Of a backfill: which one, the run whose end began this one, and what it does where another run of its schedule goes on. */
  backfill?: { readonly id: string; readonly after?: string; readonly overlap?: 'wait' | 'skip' }
  /** Of a manual run and of a backfill: who asked. */
  requestedBy?: string
  /** Other due times that this one stands for, too. */
  coalesced?: {
    /** How many; if `isMore`, those that were counted. */
    readonly count: number
    /** The first of them. */
    readonly since: Date
    /** There were too many to count them all: more than 300 due times in all. */
    readonly isMore: boolean
  }
  /** How much later than due it was to start, by jitter. */
  jitterMs?: number
  /** If it starts after this it is Missed; null: no limit. */
  startBy?: Date | null
  /** Its schedule's when it was due: how many of its runs may go on at the same time. */
  maxInstances: number
  /** Its schedule's when it was due. */
  retry: {
    /** Tries in all, the first one included. */
    readonly attempts: number
    /** The pause after the first failure, doubled with each further one. */
    readonly backOffMs: number
    /** The longest pause. */
    readonly longestMs: number
  }
  /** How long one try may take; null: 23 h. */
  timeoutMs?: number | null
  /** The try that is running, or ran last; from 1. */
  attempt?: number
  /** Tries that ended with their replica. */
  lost?: number
  /** When a failed run is tried again. */
  retryAt?: Date | null
  /** When its first try began, in the server's time; absent: none has. */
  startedAt?: Date
  /** The replica that runs it, or ran it last: its name. */
  by?: string
  /** The fence of the lock that its latest try ran under: the task's `run.fence`. */
  lockFence?: number
  /** The document that it has started, and whose end it takes over (`starts`); absent: it runs its task, or hasn't started one yet. */
  started?: StartedDocument
  /** Why its document is asked to stop; when that has stopped, the run is Failed for it. */
  stopping?: {
    /** As observers of the run get it. */
    readonly why: 'cancelled' | 'timeout' | 'lockLost'
    /** Who asks the document to stop. */
    readonly by: string
    /** Why, for the document's history. */
    readonly reason: string | null
    /** What the run then has as its error. */
    readonly error: RunError
  }
  /** Stored before the callbacks run; the phase follows when they have. */
  outcome?: RunOutcome
  /** When it ended: the server's time, carried on by the replica's clock. */
  completedAt?: Date
  /** From startedAt to completedAt. */
  durationMs?: number
  /** What the latest try's `run.count` added up, by counter: at most 100 of them. */
  counters?: Readonly<Record<string, number>>
  /** What the task returned; absent: nothing, or not JSON of at most 64 KB, as `notKept` then says. */
  result?: Json
  /** What its latest try left and couldn't be kept, with the reasons: its result, counters. The first ten. */
  notKept?: readonly string[]
  /** Why its latest try failed; null: it succeeded. */
  error?: RunError | null
  /** Why it was Skipped or Missed. */
  reason?: string
  /** Who had its lock, if that is why it was Skipped or has Failed. */
  overlap?: Overlap
  /** What its tries logged: the first 50 lines and the latest 150. */
  log?: readonly RunLine[]
  /** Lines that were logged beyond what is kept. */
  logDropped?: number
  /** What its callback threw: the outcome stands all the same. */
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
