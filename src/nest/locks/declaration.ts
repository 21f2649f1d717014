import type { LockDuration } from '../../locks/index.js'

/** What `@SchedulerLock` takes. Strings may contain `${KEY}` or `${KEY:otherwise}`: values of the app's settings. */
export interface SchedulerLockOptions {
  /** The lock's name: two methods, or two replicas, with the same name exclude each other. */
  readonly name: string
  /** Default: that of `forRoot`; one of the two is needed. */
  readonly lockAtMostFor?: LockDuration | undefined
  /** Default: that of `forRoot`, else 0. */
  readonly lockAtLeastFor?: LockDuration | undefined
  /** Extends the lock while the method runs. Default: that of `forRoot`, else false. */
  readonly watchdog?: boolean | LockDuration | undefined
  /** How long a call waits for the lock. Default 0: it is skipped at once. */
  readonly waitFor?: LockDuration | undefined
}

/** One decorated method. */
export interface LockDeclaration {
  /** `Class.method`, for people. */
  readonly where: string
  readonly options: SchedulerLockOptions
}

/** The declarations noted on a prototype or, for static methods, on the class. */
export const LOCKED = Symbol.for('phaselock:locked')
