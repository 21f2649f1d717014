import type { Db } from 'mongodb'
import { z } from 'zod'
import type { LockProvider } from '../locks/index.js'
import {
  aFunction,
  aName,
  anything,
  DOORBELL_MODES,
  type DoorbellMode,
  duration,
  durationText,
  expecting,
  having,
  oneOf,
  processOptions,
  readOptions,
  whole,
} from '../options/index.js'
import type { Logger } from '../phases/index.js'
import type { Clock, Duration } from '../time/index.js'
import { RUN_OUTCOMES, type RunOutcome } from './documents.js'
import { InvalidSchedulesOptions } from './errors.js'
import type { ScheduleObserver } from './observer.js'
import type { Task } from './tasks.js'

export interface SchedulesOptions<Context = unknown> {
  /** Default: the database of the replica that runs the lifecycles; without one the methods throw NotAttached. */
  readonly db?: Db | undefined
  /** The tasks that this process can run, by name. Without any it only owns schedules and leaves their runs to other processes. */
  readonly tasks?: Readonly<Record<string, Task<Context>>> | undefined
  /** Looked up anew for each run: databases, clients, whatever isn't JSON. */
  readonly context?: (() => Context | Promise<Context>) | undefined
  /** Who grants `scheduler_lock:<id>`. Default: MongoDB, in the same database. */
  readonly locks?: LockProvider | undefined
  /** This process's name in runs and locks. Default: POD_NAME, else the host's name and the process id. */
  readonly name?: string | undefined
  /** The collections' names. Default `schedules` and `runs`. */
  readonly collections?: { readonly schedules?: string; readonly runs?: string } | undefined
  /** What a replica's crash costs at most. Default 30s. */
  readonly lockTimeout?: Duration | undefined
  /** How long the named lock of a run outlives a holder that died; extended every third of that time. Default 30m. */
  readonly lockAtMostFor?: Duration | undefined
  /** How long runs are kept: one time for all, or by how they ended. Default 30d; Skipped and Missed 7d. */
  readonly keepFor?: Duration | Partial<Readonly<Record<RunOutcome, Duration>>> | undefined
  /** Runs at once on one replica. Default 32. */
  readonly concurrency?: number | undefined
  /** How many schedules are looked at for edits made in the database, each second. Default 1,000. */
  readonly watchPerSecond?: number | undefined
  /** `off`: replicas aren't notified of runs that the owner's methods ask for. Default: that of the replica it is attached to, else on. */
  readonly doorbell?: DoorbellMode | undefined
  /** Called when runs start and end here, for metrics and logs. */
  readonly observer?: ScheduleObserver | undefined
  readonly logger?: Logger | undefined
  readonly clock?: Clock | undefined
}

const kept = durationText('1s', '3650d')

const schedulesOptions = z.strictObject({
  db: having(['collection'], 'a Db of the mongodb driver').optional(),
  tasks: having([], '{ name: function }').optional(),
  context: aFunction('a function that returns it, such as () => ({ db })').optional(),
  locks: having(['lock'], 'a lock provider, such as await openLockProvider({ url }) from phaselock/locks').optional(),
  name: processOptions.name,
  observer: having([], 'an object with methods such as ended()').optional(),
  logger: anything,
  clock: anything,
  collections: z
    .strictObject({ schedules: aName.default('schedules'), runs: aName.default('runs') })
    .refine((value) => value.schedules !== value.runs, 'expected two different names, got the same one twice')
    .prefault({}),
  lockTimeout: durationText('1s', '24h').default('30s'),
  lockAtMostFor: duration('1s', '24h').default(30 * 60_000),
  keepFor: z
    .union([kept, z.partialRecord(z.enum(RUN_OUTCOMES), kept)], expecting('a duration, or one for each outcome'))
    .prefault({}),
  concurrency: whole(1, 10_000).default(32),
  watchPerSecond: whole(1, 100_000).default(1_000),
  doorbell: oneOf(DOORBELL_MODES).optional(),
} satisfies { readonly [option in keyof Required<SchedulesOptions>]: z.ZodType })

const KEEP_FOR: Readonly<Record<RunOutcome, Duration>> = {
  Completed: '30d',
  Failed: '30d',
  Skipped: '7d',
  Missed: '7d',
}

/** @throws InvalidSchedulesOptions listing every problem */
export function readSchedulesOptions<Context>(given: SchedulesOptions<Context>) {
  const read = readOptions(schedulesOptions, given ?? {})
  if ('problems' in read) throw new InvalidSchedulesOptions(read.problems)
  const { collections, lockTimeout, lockAtMostFor, concurrency, keepFor, watchPerSecond, doorbell } = read.options
  const all = (duration: Duration) => Object.fromEntries(RUN_OUTCOMES.map((outcome) => [outcome, duration]))
  return {
    ...{ collections, lockTimeout, concurrency, watchPerSecond, doorbell },
    lockAtMostForMs: lockAtMostFor,
    keepFor: { ...KEEP_FOR, ...(typeof keepFor === 'string' ? all(keepFor) : keepFor) } as typeof KEEP_FOR,
  }
}

/** The options, checked, with their defaults. */
export type SchedulesSettings = ReturnType<typeof readSchedulesOptions>
