import type { Collection } from 'mongodb'
import type { DeadlineHold, RefusingDocuments, Terms, WorkSplit } from '../../lock/index.js'
import type { BoundedLog } from '../bounded-log.js'
import type { AnyHandler } from '../definition/bound-lifecycle.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import type { SharedParts } from './replica-parts.js'
import type { BrokenReports } from './report/broken-reports.js'
import type { PhaseActivity } from './run/loop-monitor.js'

/** What a lifecycle's runner gets from its replica. */
export interface RunnerContext extends SharedParts {
  readonly model: LifecycleModel
  readonly handlers: Readonly<Record<string, AnyHandler>>
  readonly collection: Collection
  /** The same collection over a connection of its own, so that a full pool never costs a lease. */
  readonly renewalCollection: Collection
  readonly replica: string
  /** The phases whose handlers are declared as `thread(...)`. */
  readonly threadPhases: Pick<ReadonlySet<string>, 'has'>
  /** By phase: who is told of its steps, where handlers run on the event loop. */
  readonly activities: ReadonlyMap<string, PhaseActivity>
  /** Documents that refuse writes. */
  readonly skips: RefusingDocuments
  readonly broken: BrokenReports
  /** For lines about single documents. */
  readonly lines: BoundedLog
  /** The terms in force. */
  readonly terms: () => Terms
  /** Before a claim or a renewal; rejects when the terms in force can't be known, and then there must be none. */
  readonly keepTermsFresh: () => Promise<void>
  /** The server's time by estimate. */
  readonly serverNow: () => Date
  /** While a step of the server's clock isn't confirmed. */
  readonly deadlineHold: () => DeadlineHold | undefined
  /** The back-off after having waited so long. */
  readonly pauseMs: (waitedMs: number) => number
  /** How due documents are shared with other replicas. */
  readonly share: WorkSplit
  /** Asks for a look ahead of the next tick. */
  readonly lookSoon: () => void
  /** Tells other replicas of documents in a phase that are due and that this one can't take. */
  readonly ringOthers: (phase: string) => void
}
