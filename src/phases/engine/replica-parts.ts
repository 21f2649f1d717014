import type { Ring } from '../../doorbell/index.js'
import type { ServerClock } from '../../lock/index.js'
import type { Clock } from '../../time/index.js'
import type { Logger } from '../logger.js'
import type { ThreadPool } from '../threads/index.js'
import type { ReplicaSettings } from './check-options.js'
import type { Company } from './claim/company.js'
import type { ReplicaObserver } from './observer.js'
import type { LifecycleRegistry } from './registry/lifecycle-registry.js'
import type { LiveReplicas } from './registry/live-replicas.js'
import type { LoopMonitor } from './run/loop-monitor.js'

/** What every part of a replica works with. */
export interface SharedParts {
  readonly clock: Clock
  readonly serverClock: ServerClock
  readonly random: () => number
  readonly logger: Logger
  readonly observer: Required<ReplicaObserver>
  /** What may be held beside what. */
  readonly company: Company
  /** For handlers that are declared as `thread(...)`. */
  readonly threads: ThreadPool
  /** Whether local timers wake the replica between ticks. */
  readonly wakes: () => boolean
}

/** What a replica has one of, for all of its lifecycles. */
export interface ReplicaParts extends SharedParts {
  readonly options: ReplicaSettings
  readonly identity: string
  readonly registry: LifecycleRegistry
  readonly liveReplicas: LiveReplicas
  readonly monitor: LoopMonitor
  /** Asks for a look ahead of the next tick, after so many milliseconds or a few. */
  readonly lookSoon: (ms?: number) => void
  /** Tells other replicas of documents that are due and that this one can't take. */
  readonly ringOthers: (ring: Ring) => void
}
