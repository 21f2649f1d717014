import { type ActiveLock, activeLocks } from './active-lock.js'
import type { LockDuration } from './durations.js'
import { LockLost, NotLocked } from './errors.js'

const innermost = (): ActiveLock | undefined => activeLocks.getStore()?.at(-1)

/** Extends the innermost lock of its call path. */
export const LockExtender = {
  /**
   * Holds the lock for `lockAtMostFor` from now on; `lockAtLeastFor` counts from the time it was locked.
   * @throws NotLocked, LockLost, LockProviderUnavailable, InvalidLockConfig
   */
  async extendActiveLock(lockAtMostFor: LockDuration, lockAtLeastFor?: LockDuration): Promise<void> {
    const active = innermost()
    if (!active) throw new NotLocked()
    await active.extend(lockAtMostFor, lockAtLeastFor)
  },
}

/** Checks that code runs under a lock: catches a method that is called without its decorator. */
export const LockAssert = {
  /**
   * @param name the lock to check for; default: any
   * @throws NotLocked if the call path has no such lock; LockLost if it had one that has ended
   */
  assertLocked(name?: string): void {
    if (passing.has(activeLocks.getStore() ?? {})) return
    const wanted = activeLocks.getStore()?.filter((one) => name === undefined || one.name === name) ?? []
    if (wanted.some((one) => one.isHeld)) return
    const [had] = wanted
    throw had ? new LockLost(had.name) : new NotLocked(name)
  },

  /** For unit tests of a task: within `task` every assertion passes without any lock. */
  passWithin<R>(task: () => R): R {
    const path: readonly ActiveLock[] = [...(activeLocks.getStore() ?? [])]
    passing.add(path)
    return activeLocks.run(path, task)
  },
}

const passing = new WeakSet<object>()
