import type { Collection } from 'mongodb'
import type { Ring } from '../../../doorbell/index.js'
import type { Claimant, EndKind, Paused, RefusingDocuments, ServerClock, Terms } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { LifecycleModel } from '../../model/model.js'
import type { BoundedLog } from '../../reporting/bounded-log.js'
import type { BrokenReports } from '../../reporting/broken-reports.js'
import type { Logger } from '../../reporting/logger.js'
import type { ReplicaObserver, StepEnded } from '../../reporting/observer.js'
import type { ThreadPool } from '../../threads/index.js'
import type { SharedSemaphore, StepKind } from '../concurrency/step-semaphore.js'
import type { LimitLeases } from '../limits/limit-leases.js'
import type { ReplicaSettings } from '../options/replica-options.js'
import type { FlowCounter, LifecycleFlow } from '../registry/flow-counter.js'
import type { LifecycleRegistry } from '../registry/lifecycle-registry.js'
import type { LiveReplicas } from '../registry/live-replicas.js'
import type { ParentNotifier } from '../wake/parent-notifier.js'

/** The context of a replica: what the parts of all its lifecycles share. */
export interface Environment {
  readonly options: ReplicaSettings
  /** The name of this replica, made unique for this start. */
  readonly identity: string
  readonly claimant: Claimant
  readonly clock: Clock
  readonly serverClock: ServerClock
  /** The server's time by estimate. */
  readonly serverNow: () => Date
  readonly random: () => number
  readonly logger: Logger
  readonly observer: Required<ReplicaObserver>
  readonly registry: LifecycleRegistry
  readonly liveReplicas: LiveReplicas
  /** This replica's slots of limits. */
  readonly limitLeases: LimitLeases
  /** Counts what it records. */
  readonly flows: FlowCounter
  /** The parents and children of its documents. */
  readonly related: ParentNotifier
  /** The places, one of which each running step takes; undefined: any number. */
  readonly sharedSemaphore: SharedSemaphore | undefined
  /** The threads for handlers that are declared as `thread(...)`. */
  readonly threads: ThreadPool
  /** True if local timers wake the replica between ticks. */
  readonly wakes: () => boolean
  /** Asks for a look before the next tick, after `ms` or shortly. */
  readonly lookSoon: (ms?: number) => void
  /** Rings other replicas for due documents that this one can't take. */
  readonly ringOthers: (ring: Ring) => void
}

/** The context of one lifecycle: what its parts share, besides that of the replica. */
export interface LifecycleEnvironment extends Environment {
  readonly model: LifecycleModel
  readonly collection: Collection
  /** The same collection over a connection of its own, so that a full pool never costs a lease. */
  readonly renewalCollection: Collection
  /** The terms in force. */
  readonly terms: () => Terms
  /** To be awaited before a claim or a renewal; rejects when the terms in force can't be known, and then neither may happen. */
  readonly keepTermsFresh: () => Promise<void>
  /** The pauses of the lifecycle, as of the last reading. */
  readonly paused: () => Paused
  /** Whether a replica with another definition of it has started since, as of the last reading. */
  readonly isSuperseded: () => boolean
  /** The kind of place that a phase's handler runs in. */
  readonly kindOf: (phase: string) => StepKind
  /** Notified of each recorded end of a step, and of other events to deliver; undefined: the lifecycle has no callbacks. */
  readonly callbacks: { recorded(id: unknown, end: EndKind): void; found(): void } | undefined
  /** Keeps the ends of steps; undefined: nothing is kept. */
  readonly events: { ended(told: StepEnded, token: string): void } | undefined
  readonly flow: LifecycleFlow
  readonly refusing: RefusingDocuments
  readonly broken: BrokenReports
  readonly lines: BoundedLog
}
