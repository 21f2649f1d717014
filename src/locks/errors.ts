const list = (problems: readonly string[]) =>
  problems.length === 1 ? problems[0] : `\n${problems.map((problem) => `  - ${problem}`).join('\n')}`

import { brand } from '../options/index.js'

/** A lock's configuration that can't be used; lists every problem. */
export class InvalidLockConfig extends Error {
  override readonly name = 'InvalidLockConfig'
  constructor(
    /** The lock's name as it was given, or the place where it was declared. */
    readonly lock: string,
    /** For each invalid option: the expected and the given value. */
    readonly problems: readonly string[],
  ) {
    super(`lock ${lock} can't be used: ${list(problems)}`)
  }
}

/** The settings of a lock provider can't be used, or name a package that isn't installed. */
export class InvalidLockProvider extends Error {
  override readonly name = 'InvalidLockProvider'
  constructor(
    /** The expectation, the finding and the remedy: the same as `message`. */
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    super(problem, options)
  }
}

/**
 * The provider's server didn't answer, or not in time. Nothing was run. The server may still have granted an acquisition that no
 * caller knows of: the process that requested it frees it in the background, and it expires after lockAtMostFor. An unlock or an
 * extension may or may not have been done; the handle can try again.
 */
export class LockProviderUnavailable extends Error {
  override readonly name = 'LockProviderUnavailable'
  constructor(
    /** The provider's `kind`, such as `'postgres'`. */
    readonly provider: string,
    /** The action it was to perform, such as `lock 'nightly-reports'`. */
    readonly action: string,
    cause: unknown,
    consequence = 'try again when the server is back',
  ) {
    const got = cause instanceof Error ? cause.message || cause.name : String(cause)
    super(`expected the ${provider} lock provider to ${action}, got: ${got}; ${consequence}`, { cause })
  }
}

/** The handle was used up by `extend()`: the returned handle holds the lock. Nothing was changed. */
export class StaleLockHandle extends Error {
  override readonly name = 'StaleLockHandle'
  constructor(
    /** The lock's name. */
    readonly lock: string,
  ) {
    super(
      `lock '${lock}': expected the handle that extend() returned, got the one that was extended; use the new one (lock = await lock.extend(...))`,
    )
  }
}

/** `LockAssert.assertLocked()` was called where no lock is held. */
export class NotLocked extends Error {
  override readonly name = 'NotLocked'
  constructor(
    /** The name that was asserted; undefined: any lock would have done. */
    readonly lock?: string,
  ) {
    super(
      `expected to run under ${lock === undefined ? 'a lock' : `the lock '${lock}'`}, but no such lock is held on this call path; ` +
        'call it within executeWithLock() or from a method with @SchedulerLock',
    )
  }
}

/** The lock of this call path has expired, was freed by an operator, or was taken by another caller: it can't be extended. */
export class LockLost extends Error {
  override readonly name = 'LockLost'
  constructor(
    /** The lock's name. */
    readonly lock: string,
  ) {
    super(
      `expected to hold the lock '${lock}', but it expired, was freed or was taken by another; stop, and use a longer lockAtMostFor or a watchdog`,
    )
  }
}

brand({ InvalidLockConfig, InvalidLockProvider, LockProviderUnavailable, StaleLockHandle, NotLocked, LockLost })
