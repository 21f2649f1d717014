import type { Db } from 'mongodb'
import type { Rights } from '../../../database/index.js'
import type { DoorbellKind } from '../../../doorbell/index.js'
import type { Only, Protocol } from '../../../lock/index.js'
import type { DoorbellMode } from '../../../options/index.js'
import type { Clock, Duration } from '../../../time/index.js'
import type { Alongside } from '../../background/background.js'
import type { AnyHandler } from '../../definition/bound-lifecycle.js'
import type { LifecycleModel } from '../../model/model.js'
import type { OwnerClientOptions } from '../../owner/owner-types.js'
import type { Logger } from '../../reporting/logger.js'
import type { ReplicaObserver } from '../../reporting/observer.js'
import type { Callbacks } from '../../step/callbacks.js'
import type { ThreadPool } from '../../threads/index.js'
import type { SlotsHeld } from '../limits/leased-slots.js'
import type { SharedPlaces } from '../places/shared-places.js'

/** A lifecycle with its handlers, as `lifecycle.handle({...})` returns it. */
export interface RunnableLifecycle {
  /** Its phases, rules and settings as they were checked. */
  readonly model: LifecycleModel
  /** The handler of each working phase, by its name. */
  readonly handlers: Readonly<Record<string, AnyHandler>>
  /** What each of its callbacks does, by its name; one that is declared and missing here is left to other replicas. Default: none. */
  readonly callbacks?: Callbacks
  /** Gives its owner's methods their database; a replica does this when it is made. */
  attach(db: Db, options?: OwnerClientOptions): unknown
  /** Asked before each look and claim: documents that this process can't work on, in some phases, are left to others. */
  only?(): Only | undefined
  /** Called once at a replica's start, when the collections and their indexes exist: for indexes and documents of its own. */
  prepare?(db: Db, indexes: 'create' | 'check'): Promise<void>
  /** What it does with collections besides claims and moves, so that a start says what its user lacks. Default: removes what is final. */
  readonly rights?: readonly Rights[]
  /** Background work on each replica that works between its ticks (`start()`; not `runOnce()`), until the replica stops. */
  readonly alongside?: readonly Alongside[]
}

/** Options of `new Replica(...)`. */
export interface ReplicaOptions {
  /** Where the documents are; `connectDatabase` gives one whose client has the settings that a replica needs. */
  readonly db: Db
  /** What it runs. No two may share a phase of one collection. */
  readonly lifecycles: readonly RunnableLifecycle[]
  /** Who it is in `lockedBy`: POD_NAME in Kubernetes. Default: the host's name and the process id. */
  readonly name?: string | undefined
  /** The same database over a connection of its own, for renewals. Default: `db`. */
  readonly renewalDb?: Db | undefined
  /**
   * The same database over the caller's own client: what the lifecycles' owner methods use, so that they can take part in the
   * caller's transactions. Default: `db`.
   */
  readonly ownerDb?: Db | undefined
  /**
   * Whether it listens for new documents between its ticks and rings for other replicas, and how (docs/doorbell.md). Default
   * 'auto': by a tailable cursor on a capped collection, the quickest on every deployment.
   */
  readonly doorbell?: DoorbellMode | undefined
  /**
   * The same database on a client for listening (`doorbellClient()`). Default: `db`, of whose pool listening then takes a
   * connection for good; where that has fewer than five it doesn't listen.
   */
  readonly doorbellDb?: Db | undefined
  /**
   * Whether a start creates what is missing (two indexes for each collection, the collection `phaselock.lifecycles`), or only
   * looks and fails with MissingIndexes, for a user without DDL rights. Default 'create'.
   */
  readonly indexes?: 'create' | 'check' | undefined
  /** How long running steps may go on after `stop()`. Default 10s. */
  readonly grace?: Duration | undefined
  /**
   * Handlers that run at once, of all its lifecycles together, besides each one's own `concurrency`: 1 to 10,000. While they want more, each
   * lifecycle has an equal share, and others have what one doesn't need. Callbacks and background work don't count. Default: any number.
   * @example
   * ```ts
   * new Replica({ db, lifecycles: [orders, parcels], concurrency: 50 })
   * ```
   */
  readonly concurrency?: number | undefined
  /**
   * Worker threads at most, for handlers that are declared as `thread(...)`; they start when a step needs one. Default: the
   * cores that this process may use, but one; at least 1.
   */
  readonly threads?: number | undefined
  /** What one thread may keep in memory, in MB of its heap. Default: as much as Node gives a thread. */
  readonly threadMemoryMb?: number | undefined
  /** The event loop counts as blocked, and is reported, when it doesn't turn for this long. Default 200ms; 0ms: not monitored. */
  readonly blockedAfter?: Duration | undefined
  /**
   * For how long a forward step of the server's clock has to last before deadlines, removals and the ends of leases go by it.
   * Default 60s; 0s: at once.
   */
  readonly clockHold?: Duration | undefined
  /**
   * How often it writes its document in `phaselock.replicas`, by which people see it (`phaselock replicas`): one command each time. Default 10s;
   * 0s: never.
   */
  readonly beatEvery?: Duration | undefined
  /**
   * How often one of the replicas counts what nobody takes, what waits for what and which questions are open (`phaselock status`, metrics): one
   * command for each lifecycle. Default 5m; 0s: not by this replica.
   */
  readonly sweepEvery?: Duration | undefined
  /**
   * How often it looks for due work that no ring and no timer of its own has reported: one command each time. It is the least pause of a wait
   * without `for`, too, so that a handler asks an outside system no more often. 1s to 10s; default 1s. Longer, an idle replica costs less, and
   * documents that others insert without a ring, pauses and requests to cancel are seen later.
   */
  readonly tickEvery?: Duration | undefined
  /** Background work for each of its lifecycles, from `start()` until it stops. Default: none. */
  readonly alongside?: readonly Alongside[] | undefined
  /** Where its log lines go. Default: warnings and errors to standard error; `silentLogger`: nowhere. */
  readonly logger?: Logger | undefined
  /** Notified of everything that happens, for metrics and hooks. */
  readonly observer?: ReplicaObserver | readonly ReplicaObserver[] | undefined
  /** For tests. Default: the process's clocks; they decide nothing that the database's clock decides. */
  readonly clock?: Clock | undefined
  /** For tests: numbers from 0 to 1, for draws and jitter. Default `Math.random`. */
  readonly random?: (() => number) | undefined
  /**
   * What a start does when a claim or a look is not a bounded scan of its index: say so in the log, or fail with
   * BadQueryPlan. Default 'warn'.
   */
  readonly onBadPlan?: 'warn' | 'refuse' | undefined
  /** Threads that several replicas of a process share. @internal */
  readonly threadPool?: ThreadPool | undefined
  /** Places that several replicas of a process share, instead of `concurrency`. @internal */
  readonly sharedPlaces?: SharedPlaces | undefined
  /** @internal */
  readonly protocol?: Protocol | undefined
  /** Whether it may have no lifecycles: a Nest app has a replica of its own database, also where all lifecycles are in others. @internal */
  readonly mayBeIdle?: boolean | undefined
}

/** A replica's doorbell: how it hears, `deaf` while it can't (the tick finds everything), `off` where it doesn't listen. */
export type DoorbellStatus = DoorbellKind | 'deaf' | 'off'

/** Something that people have paused: no step of it begins, on no replica. */
export interface PausedWork {
  /** Of which lifecycle. */
  readonly lifecycle: string
  /** `all`: with every lifecycle; else all of the lifecycle, one phase of it, or one document. */
  readonly what: 'all' | 'lifecycle' | 'phase' | 'document'
  /** Where it is a phase: its name. */
  readonly phase?: string
  /** Where it is a document: its `_id`. */
  readonly _id?: unknown
  /** All of it in one line: `order, phase Packing: paused by ana: the printer is broken`. */
  readonly text: string
}

/** What a replica is doing at this moment, by what it knows itself: nothing is read. */
export interface ReplicaStatus {
  /** Its name, made unique for this start: `lockedBy` begins with it. */
  readonly identity: string
  /** Empty: ready. Else why it isn't. */
  readonly notReady: readonly string[]
  /** What people have paused of its lifecycles, as of its last look; a replica that waits for them is ready all the same. */
  readonly paused: readonly PausedWork[]
  /** Documents that it holds. */
  readonly held: number
  /** Of these, those that wait for a place (`concurrency`). */
  readonly queued: number
  /** Of these, those whose handlers run. */
  readonly running: number
  /** Handlers that were given up after their step timeout, and still run. */
  readonly abandoned: number
  /** What it has of the limits that its lifecycles need (docs/limits.md), of those that it has asked for so far. */
  readonly limits: readonly SlotsHeld[]
  /** Documents that refuse writes, left alone for a while. */
  readonly skipped: number
  /** How it hears of new documents between its ticks; `deaf`: it can't now; `off`: it doesn't listen. */
  readonly doorbell: DoorbellStatus
  /**
   * How many live replicas share its lifecycles, by version of the package (`unknown`: an older one, which doesn't say), as of its last look. One
   * that was killed counts for two minutes.
   */
  readonly replicas: Readonly<Record<string, number>>
}
