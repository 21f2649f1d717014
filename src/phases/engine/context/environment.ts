import type { Collection } from 'mongodb'
import type { EndKind, Paused, RefusingDocuments, ServerClock, Terms } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { LifecycleModel } from '../../model/model.js'
import type { BoundedLog } from '../../reporting/bounded-log.js'
import type { BrokenReports } from '../../reporting/broken-reports.js'
import type { Logger } from '../../reporting/logger.js'
import type { ReplicaObserver, StepEnded } from '../../reporting/observer.js'
import type { StepKind } from '../concurrency/step-semaphore.js'
import type { LimitLeases } from '../limits/limit-leases.js'
import type { RelatedLifecycles } from './related-lifecycles.js'

/** The environment of every part of a replica. */
export interface Environment {
  readonly clock: Clock
  readonly serverClock: ServerClock
  /** The server's time by estimate. */
  readonly serverNow: () => Date
  readonly random: () => number
  readonly logger: Logger
  readonly observer: Required<ReplicaObserver>
}

/** The environment of the parts of one lifecycle, with their shared objects. */
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
  /** This replica's slots of limits, for all of its lifecycles. */
  readonly limitLeases: LimitLeases
  /** The parents and children of its documents. */
  readonly related: RelatedLifecycles
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
