import type { Collection, Db } from 'mongodb'
import type { Logger } from '../phases/index.js'
import type { Clock } from '../time/index.js'
import type { ScheduleDocument } from './documents.js'
import type { RunStore } from './insert-runs.js'
import type { ScheduleObservers } from './observer.js'
import type { SchedulesSettings } from './options.js'
import type { RunLocks } from './run-lock.js'
import type { StoredRun } from './schedule-reader.js'
import type { TaskRegistry } from './tasks.js'

/** The shared parts of the lifecycles of schedules and of runs, on one replica. */
export interface Workplace<Context = unknown> {
  /** The name of this replica, for people. */
  readonly name: string
  readonly settings: SchedulesSettings
  readonly tasks: TaskRegistry<Context>
  readonly context: () => Context | Promise<Context>
  readonly locks: RunLocks
  readonly store: RunStore
  readonly db: () => Db
  readonly schedules: () => Collection<ScheduleDocument>
  readonly runs: () => Collection<StoredRun>
  readonly clock: Clock
  readonly logger: Logger
  readonly observers: ScheduleObservers
}
