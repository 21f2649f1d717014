import type { Collection } from 'mongodb'
import type { Ring } from '../../../doorbell/index.js'
import type {
  ChildrenOf,
  Claimant,
  DocumentName,
  EndKind,
  Paused,
  RefusingDocuments,
  ServerClock,
  StoredParent,
  Terms,
} from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { LifecycleModel } from '../../model/model.js'
import type { BoundedLog } from '../../reporting/bounded-log.js'
import type { BrokenReports } from '../../reporting/broken-reports.js'
import type { Logger } from '../../reporting/logger.js'
import type { ReplicaObserver, StepEnded } from '../../reporting/observer.js'
import type { ThreadPool } from '../../threads/index.js'
import type { SharedSemaphore } from '../concurrency/shared-semaphore.js'
import type { StepKind } from '../concurrency/step-semaphore.js'
import type { LimitLeases } from '../limits/limit-leases.js'
import type { ReplicaSettings } from '../options/replica-options.js'
import type { LifecycleRegistry } from '../registry/lifecycle-registry.js'
import type { LiveReplicas } from '../registry/live-replicas.js'

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
  /** The parents and children of its documents. */
  readonly related: RelatedLifecycles
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
  /** Documents that refuse writes. */
  readonly refusing: RefusingDocuments
  readonly broken: BrokenReports
  /** The log of lines about single documents. */
  readonly lines: BoundedLog
}

/** The way that a child came to its end. */
export type ChildEnd = 'succeeded' | 'failed' | 'parked'

/** Parents and children across lifecycles, be they run by this replica or by others. */
export interface RelatedLifecycles {
  /** A lifecycle that this replica runs, or that another one has registered; undefined: it is unknown. */
  modelOf(name: string): Promise<LifecycleModel | undefined>
  /** The names of all lifecycles whose documents may be children, as far as they are known. */
  childLifecycles(): Promise<readonly string[]>
  collectionOf(model: LifecycleModel): Collection
  /** @param fromFence only those from this fence on */
  childrenOf(model: LifecycleModel, parent: ChildrenOf['parent'], fromFence?: number): ChildrenOf
  /** Rings for new documents of these lifecycles, which are due. */
  inserted(models: readonly LifecycleModel[]): void
  /** Notifies a parent, if this end decides what it waits for. Returns immediately and never throws. */
  ended(model: LifecycleModel, parent: StoredParent, how: ChildEnd): void
  /** Notifies a document that waits until another one is in this phase. */
  reached(model: LifecycleModel, id: unknown, phase: string, waiter: DocumentName): void
}
