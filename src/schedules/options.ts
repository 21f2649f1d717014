import type { Db } from 'mongodb'
import type { LockProvider } from '../locks/index.js'
import { DOORBELL_MODES, type DoorbellMode, processOptions, readOptions, t } from '../options/index.js'
import type { Logger } from '../phases/index.js'
import type { Clock, Duration } from '../time/index.js'
import { RUN_OUTCOMES, type RunOutcome } from './documents.js'
import { InvalidSchedulesOptions } from './errors.js'
import type { ScheduleObserver } from './observer.js'
import type { Task } from './tasks.js'

/** The options of `new Schedules(...)`; all of them are optional. */
export interface SchedulesOptions<Context = unknown> {
  /** The database. Default: that of the replica that runs the lifecycles; without one the methods throw NotAttached. */
  readonly db?: Db | undefined
  /** The tasks that this process can run, by name. Without any, it only owns schedules and leaves their runs to other processes. */
  readonly tasks?: Readonly<Record<string, Task<Context>>> | undefined
  /** The context of tasks, looked up again for each run: databases, clients, anything that isn't JSON. */
  readonly context?: (() => Context | Promise<Context>) | undefined
  /** The provider of the locks `scheduler_lock:<id>`. Default: MongoDB, in the same database. */
  readonly locks?: LockProvider | undefined
  /** This process's name in runs and locks. Default: POD_NAME, else the host's name and the process id. */
  readonly name?: string | undefined
  /** The collections' names: two different ones. */
  readonly collections?:
    | {
        /** The collection of the schedules, and the name of their lifecycle. Default `schedules`. */
        readonly schedules?: string
        /** The collection of their runs. Default `runs`. */
        readonly runs?: string
      }
    | undefined
  /** The lease time: the longest delay that a replica's crash causes. Default 30s. */
  readonly lockTimeout?: Duration | undefined
  /** The time for which the named lock of a run outlives a holder that died; extended every third of that time. Default 30m. */
  readonly lockAtMostFor?: Duration | undefined
  /** The time for which runs are kept: one for all, or by outcome. Default 30d; Skipped and Missed 7d. */
  readonly keepFor?: Duration | Partial<Readonly<Record<RunOutcome, Duration>>> | undefined
  /** The number of runs at the same time on one replica. Default 32. */
  readonly concurrency?: number | undefined
  /** The number of schedules per second that are checked for edits made in the database. Default 1,000. */
  readonly watchPerSecond?: number | undefined
  /** `off`: replicas aren't notified of runs that the owner's methods ask for. Default: that of the replica it is attached to, else on. */
  readonly doorbell?: DoorbellMode | undefined
  /** Called when runs start and end here, for metrics and logs. */
  readonly observer?: ScheduleObserver | undefined
  /** The destination of its log lines. Default: warnings and errors to standard error. */
  readonly logger?: Logger | undefined
  /** A clock for tests: it measures how long things take; the server's clock decides when a run is due. */
  readonly clock?: Clock | undefined
}

const A_DURATION_OR_MORE = t.expecting('a duration, or one for each outcome')
const kept = t.durationText('1s', '3650d')
const keptByOutcome = t.object(
  {
    Completed: t.withDefault(kept, '30d'),
    Failed: t.withDefault(kept, '30d'),
    Skipped: t.withDefault(kept, '7d'),
    Missed: t.withDefault(kept, '7d'),
  } satisfies t.TypesOf<Record<RunOutcome, Duration>>,
  A_DURATION_OR_MORE,
)
const keptAlike = t.converted(
  t.where<Duration>((value) => t.fits(kept, value), A_DURATION_OR_MORE),
  (duration) => Object.fromEntries(RUN_OUTCOMES.map((outcome) => [outcome, duration])) as Record<RunOutcome, Duration>,
)

const collections = t.checked(
  t.object({ schedules: t.withDefault(t.name, 'schedules'), runs: t.withDefault(t.name, 'runs') }),
  (value) => value.schedules !== value.runs,
  'expected two different names, got the same one twice',
)

const schedulesOptions = t.object({
  db: t.optional(t.having(['collection'], 'a Db of the mongodb driver')),
  tasks: t.optional(t.having([], '{ name: function }')),
  context: t.optional(t.aFunction('a function that returns it, such as () => ({ db })')),
  locks: t.optional(
    t.having(['lock'], 'a lock provider, such as await openLockProvider({ url }) from phaselock/locks'),
  ),
  name: processOptions.name,
  observer: t.optional(t.having([], 'an object with methods such as ended()')),
  logger: t.anything(),
  clock: t.anything(),
  collections: t.withDefault(collections, {}),
  lockTimeout: t.withDefault(t.durationText('1s', '24h'), '30s'),
  lockAtMostFor: t.withDefault(t.duration('1s', '24h'), '30m'),
  keepFor: t.withDefault(
    t.chosen((given) => (typeof given === 'object' ? keptByOutcome : keptAlike)),
    {},
  ),
  concurrency: t.withDefault(t.whole(1, 10_000), 32),
  watchPerSecond: t.withDefault(t.whole(1, 100_000), 1_000),
  doorbell: t.optional(t.oneOf(DOORBELL_MODES)),
} satisfies t.TypesOf<SchedulesOptions>)

/** @throws InvalidSchedulesOptions listing every problem */
export function readSchedulesOptions<Context>(given: SchedulesOptions<Context>) {
  const read = readOptions(schedulesOptions, given)
  if ('problems' in read) throw new InvalidSchedulesOptions(read.problems)
  const { collections, lockTimeout, lockAtMostFor, concurrency, keepFor, watchPerSecond, doorbell } = read.options
  return { collections, lockTimeout, lockAtMostForMs: lockAtMostFor, concurrency, keepFor, watchPerSecond, doorbell }
}

/** The options, checked, with their defaults. */
export type SchedulesSettings = ReturnType<typeof readSchedulesOptions>
