import type { Db } from 'mongodb'
import { requireNode } from '../../../config/index.js'
import type { Rights } from '../../../database/index.js'
import type { DoorbellKind } from '../../../doorbell/index.js'
import type { Only } from '../../../lock/index.js'
import { type DoorbellMode, processOptions, readOptions, shown, t } from '../../../options/index.js'
import type { Clock, Duration } from '../../../time/index.js'
import type { Alongside } from '../../background/background.js'
import type { AnyHandler } from '../../definition/bound-lifecycle.js'
import { InvalidReplicaOptions } from '../../errors/errors.js'
import type { LifecycleModel } from '../../model/model.js'
import type { OwnerClientOptions } from '../../owner/owner-types.js'
import type { Logger } from '../../reporting/logger.js'
import type { ReplicaObserver } from '../../reporting/observer.js'
import type { Callbacks } from '../../step/callbacks.js'
import type { ThreadPool } from '../../threads/index.js'
import type { SharedSemaphore } from '../concurrency/step-semaphore.js'
import type { SlotsHeld } from '../limits/limit-lease.js'

/** A lifecycle with its handlers, as `lifecycle.handle({...})` returns it. */
export interface RunnableLifecycle {
  /** Its phases, rules and settings as they were checked. */
  readonly model: LifecycleModel
  /** The handler of each working phase, by its name. */
  readonly handlers: Readonly<Record<string, AnyHandler>>
  /** The functions of its callbacks, by name; one that is declared and missing here is left to other replicas. Default: none. */
  readonly callbacks?: Callbacks
  /** Gives its owner's methods their database; a replica does this when it is made. `beside`: all that this replica runs. */
  attach(db: Db, options?: OwnerClientOptions, beside?: readonly LifecycleModel[]): unknown
  /** Asked before each look and claim: documents that this process can't work on, in some phases, are left to other replicas. */
  only?(): Only | undefined
  /** Called once at a replica's start, when the collections and their indexes exist: for indexes and documents of its own. */
  prepare?(db: Db, indexes: 'create' | 'check'): Promise<void>
  /**
   * The rights that it needs on collections besides claims and moves, so that a start reports those its user lacks. Default: to remove documents of
   * final phases.
   */
  readonly rights?: readonly Rights[]
  /** Background work on each replica that works between its ticks (`start()`; not `runOnce()`), until the replica stops. */
  readonly alongside?: readonly Alongside[]
  /**
   * Whether its handlers get numbers as the driver reads them by itself, whatever the database's options say (`promoteValues`, `useBigInt64`): for
   * lifecycles whose handlers aren't their owner's own code. Default false.
   */
  readonly plainNumbers?: boolean
}

/** The options of `new Replica(...)`. */
export interface ReplicaOptions {
  /** The database of the documents; `connectDatabase` gives one whose client has the settings that a replica needs. */
  readonly db: Db
  /** The lifecycles that it runs. No two may share a phase of one collection. */
  readonly lifecycles: readonly RunnableLifecycle[]
  /** Its name in `lockedBy`: POD_NAME in Kubernetes. Default: the host's name and the process id. */
  readonly name?: string | undefined
  /** The same database over a connection of its own, for renewals. Default: `db`. */
  readonly renewalDb?: Db | undefined
  /**
   * The same database over the caller's own client: the lifecycles' owner methods use it, so that they can take part in the caller's transactions.
   * Default: `db`.
   */
  readonly ownerDb?: Db | undefined
  /**
   * The doorbell, which decides if and how it listens for new documents between its ticks and rings for other replicas (docs/doorbell.md). Default
   * 'auto': by a tailable cursor on a capped collection, the quickest on every deployment.
   */
  readonly doorbell?: DoorbellMode | undefined
  /**
   * The same database on a client for listening (`doorbellClient()`). Default: `db`; listening then takes a connection of its pool for good. With a
   * pool of fewer than five it doesn't listen.
   */
  readonly doorbellDb?: Db | undefined
  /**
   * `create`: a start creates missing indexes and collections (two indexes for each collection, the collection `phaselock.lifecycles`). `check`: it
   * only looks and fails with MissingIndexes, for a user without DDL rights. Default 'create'.
   */
  readonly indexes?: 'create' | 'check' | undefined
  /** The time that running steps may go on after `stop()`. Default 10s. */
  readonly grace?: Duration | undefined
  /**
   * The number of handlers that run at the same time, of all its lifecycles together, besides each one's own `concurrency`: 1 to 10,000. While they
   * want more, each lifecycle has an equal share, and others have what one doesn't need. Callbacks and background work don't count. Default: any
   * number.
   * @example
   * ```ts
   * new Replica({ db, lifecycles: [orders, parcels], concurrency: 50 })
   * ```
   */
  readonly concurrency?: number | undefined
  /**
   * The number of worker threads at most, for handlers that are declared as `thread(...)`; they start when a step needs one. Default: the cores that
   * this process may use, less one; at least 1.
   */
  readonly threads?: number | undefined
  /** The memory of one thread, in MB of its heap. Default: the amount that Node gives a thread. */
  readonly threadMemoryMb?: number | undefined
  /** The time without a turn after which the event loop counts as blocked, and is reported. Default 200ms; 0ms: not monitored. */
  readonly blockedAfter?: Duration | undefined
  /**
   * The time that a forward step of the server's clock has to last before deadlines, removals and the ends of leases go by it. Default 60s; 0s:
   * immediately.
   */
  readonly clockHold?: Duration | undefined
  /**
   * The interval between writes of its document in `phaselock.replicas`, which shows it to people (`phaselock replicas`): one command each time.
   * Default 10s; 0s: never.
   */
  readonly beatEvery?: Duration | undefined
  /**
   * The version of the app, at most 100 characters, which is shown to people. Default: PHASELOCK_APP_VERSION, or that in the package.json of the main
   * module.
   */
  readonly appVersion?: string | undefined
  /**
   * The interval of the census while no one looks: one of the replicas counts the documents that no replica takes, those that wait, by reason, and open questions
   * (`phaselock status`, metrics). One command for each lifecycle. Default 5m; 0s: not by this replica.
   */
  readonly sweepEvery?: Duration | undefined
  /**
   * The interval between looks for due work that no ring and no timer of its own has reported: one command each time. It is also the least pause of a
   * wait without `for`, so that a handler asks an outside system no more often. 1s to 10s; default 1s. With a longer one an idle replica costs less.
   * In return, documents inserted without a ring, pauses and requests to cancel are seen later.
   */
  readonly tickEvery?: Duration | undefined
  /** Background work for each of its lifecycles, from `start()` until it stops. Default: none. */
  readonly alongside?: readonly Alongside[] | undefined
  /** The destination of its log lines. Default: warnings and errors to standard error; `silentLogger`: nowhere. */
  readonly logger?: Logger | undefined
  /** Notified of everything that happens, for metrics and hooks. */
  readonly observer?: ReplicaObserver | readonly ReplicaObserver[] | undefined
  /** For tests. Default: the process's clocks; they decide nothing that the database's clock decides. */
  readonly clock?: Clock | undefined
  /** For tests: numbers from 0 to 1, for draws and jitter. Default `Math.random`. */
  readonly random?: (() => number) | undefined
  /** The reaction of a start to a claim or a look that is not a bounded scan of its index: log it, or fail with BadQueryPlan. Default 'warn'. */
  readonly onBadPlan?: 'warn' | 'refuse' | undefined
  /** Threads that several replicas of a process share. @internal */
  readonly threadPool?: ThreadPool | undefined
  /** Places that several replicas of a process share, instead of `concurrency`. @internal */
  readonly sharedSemaphore?: SharedSemaphore | undefined
  /** True if it may have no lifecycles: a Nest app has a replica of its own database, also where all lifecycles are in others. @internal */
  readonly mayBeIdle?: boolean | undefined
}

/** The state of a replica's doorbell: how it hears, `deaf` while it can't (the tick finds everything), `off` where it doesn't listen. */
export type DoorbellStatus = DoorbellKind | 'deaf' | 'off'

/** Work that people have paused: no step of it begins, on no replica. */
export interface PausedWork {
  /** The lifecycle it belongs to. */
  readonly lifecycle: string
  /** `all`: with every lifecycle; else all of the lifecycle, one phase of it, or one document. */
  readonly what: 'all' | 'lifecycle' | 'phase' | 'document'
  /** The name of a phase, where that is paused. */
  readonly phase?: string
  /** The `_id` of a document, where that is paused. */
  readonly _id?: unknown
  /** All of it in one line: `order, phase Packing: paused by ana: the printer is broken`. */
  readonly text: string
}

/** The state of a replica at this moment, by what it knows itself: nothing is read. */
export interface ReplicaStatus {
  /** Its name, made unique for this start: `lockedBy` begins with it. */
  readonly identity: string
  /** The reasons why it isn't ready; empty: it is. */
  readonly notReady: readonly string[]
  /** The problems that background work of its lifecycles reports, one line each; the replica is ready all the same. */
  readonly problems: readonly string[]
  /** The pauses of its lifecycles, as of its last look; a replica that waits for them is ready all the same. */
  readonly paused: readonly PausedWork[]
  /** The number of documents that it holds. */
  readonly held: number
  /** The number of these that wait for a place (`concurrency`). */
  readonly queued: number
  /** The number of these whose handlers run. */
  readonly running: number
  /** The number of handlers that were given up after their step timeout, and still run. */
  readonly abandoned: number
  /** Its slots of the limits that its lifecycles need (docs/limits.md), of those that it has asked for so far. */
  readonly limits: readonly SlotsHeld[]
  /** The number of documents that refuse writes, left alone for a while. */
  readonly skipped: number
  /** The way it hears of new documents between its ticks; `deaf`: it can't now; `off`: it doesn't listen. */
  readonly doorbell: DoorbellStatus
  /**
   * The number of live replicas that share its lifecycles, by version of the package (`unknown`: an older one, which doesn't report it), as of its
   * last look. One that was killed counts for two minutes.
   */
  readonly replicas: Readonly<Record<string, number>>
}

/** The lifecycles that replicas run. A definition is easily taken for one. */
export const runnableLifecycles = t.list(
  t.where<RunnableLifecycle>(
    (value) => typeof value === 'object' && value !== null && 'attach' in value && 'handlers' in value,
    (value) =>
      typeof (value as { handle?: unknown } | null)?.handle === 'function'
        ? `expected a lifecycle with its handlers, got the definition of '${(value as { name?: unknown }).name}': call its handle({ ... }) and give what that returns`
        : `expected a lifecycle with its handlers (\`lifecycle.handle({ ... })\`), got ${shown(value)}`,
  ),
  t.expecting('a list of lifecycles with their handlers (`lifecycle.handle({ ... })`)'),
)

const NONE =
  'expected at least one lifecycle with its handlers, got an empty list: without any there is nothing to work on'

export const someLifecycles = t.checked(runnableLifecycles, ({ length }) => length > 0, NONE)

/** The options that `new Replica` and `PhaselockModule.forRoot` both take. */
export const sharedOptions = {
  ...processOptions,
  indexes: t.withDefault(t.oneOf(['create', 'check']), 'create'),
  alongside: t.withDefault(t.list(t.aFunction<Alongside>(), t.expecting('a list of functions')), []),
  logger: t.optional(
    t.having<Logger>(['debug', 'info', 'warn', 'error'], 'an object with debug, info, warn and error'),
  ),
  observer: t.optional(
    t.where<ReplicaObserver | readonly ReplicaObserver[]>(
      (value) => [value].flat().every((one) => typeof one === 'object' && one !== null),
      t.expecting("an object with an observer's methods, or a list of them"),
    ),
  ),
} as const

const replicaOptions = t.object({
  db: t.aDatabase,
  lifecycles: runnableLifecycles,
  ...sharedOptions,
  renewalDb: t.optional(t.aDatabase),
  ownerDb: t.optional(t.aDatabase),
  doorbellDb: t.optional(t.aDatabase),
  clock: t.anything<Clock>(),
  random: t.optional(t.aFunction<() => number>()),
  onBadPlan: t.withDefault(t.oneOf(['warn', 'refuse']), 'warn'),
  threadPool: t.anything<ThreadPool>(),
  sharedSemaphore: t.anything<SharedSemaphore>(),
  mayBeIdle: t.optional(t.flag),
} satisfies t.TypesOf<ReplicaOptions>)

/** The options, checked, with their defaults: durations in milliseconds. */
export type ReplicaSettings = t.ValueOf<typeof replicaOptions>

/** @throws InvalidReplicaOptions for unknown options, and for values that would make a replica stand still or misbehave; UnsupportedNode */
export function checkOptions(options: ReplicaOptions): ReplicaSettings {
  requireNode()
  const read = readOptions(replicaOptions, options, {
    internal: ['threadPool', 'sharedSemaphore', 'mayBeIdle'],
    renamed: {
      graceMs: 'grace',
      blockedAfterMs: 'blockedAfter',
      clockHoldMs: 'clockHold',
      beatEveryMs: 'beatEvery',
      sweepEveryMs: 'sweepEvery',
    },
  })
  const isIdle = Array.isArray(options?.lifecycles) && options.lifecycles.length === 0 && options.mayBeIdle !== true
  const problems = [...('problems' in read ? read.problems : []), ...(isIdle ? [`lifecycles: ${NONE}`] : [])]
  if ('problems' in read || isIdle) throw new InvalidReplicaOptions(problems)
  return read.options
}
