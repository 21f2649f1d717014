/**
 * Observes an executor, for metrics and logs; errors that it throws or rejects with are ignored. Each call of `executeWithLock` that
 * requests a lock ends in one of `acquired`, `notAcquired` and `unavailable`; each `acquired` is followed by one `finished`.
 */
export interface LockObserver {
  /**
   * The lock was granted, and the task begins.
   * @param event.name the lock's name
   * @param event.lockedBy the token of this acquisition
   * @param event.fence the fence of this acquisition, as passed to the task
   * @param event.waitedMs from the call of `executeWithLock` to the grant
   */
  acquired?(event: { name: string; lockedBy: string; fence: number; waitedMs: number }): void
  /**
   * Another caller holds the lock, and the task isn't run.
   * @param event.name the lock's name
   * @param event.heldBy the holder's token; undefined: the store couldn't say, or no one holds it any more
   * @param event.waitedMs from the call of `executeWithLock` to the last refusal
   * @param event.why `held`: there was no `waitFor`; `timedOut`: it was still held after `waitFor`; `aborted`: `signal` ended the wait
   */
  notAcquired?(event: {
    name: string
    heldBy: string | undefined
    waitedMs: number
    why: 'held' | 'timedOut' | 'aborted'
  }): void
  /**
   * The lock server is unreachable, so it is unknown whether the lock is held. Nothing was run, and the caller gets the error.
   * @param event.name the lock's name
   * @param event.waitedMs from the call of `executeWithLock` to the error
   * @param event.error the provider's error, as a rule LockProviderUnavailable
   */
  unavailable?(event: { name: string; waitedMs: number; error: unknown }): void
  /**
   * The task has ended; called before its lock is freed.
   * @param event.name the lock's name
   * @param event.lockedBy the token of the acquisition that it ran under
   * @param event.ms how long the task ran
   * @param event.failed true if it threw or rejected
   */
  finished?(event: { name: string; lockedBy: string; ms: number; failed: boolean }): void
  /**
   * The lock ended before its task: it expired, was freed, or could not be extended in time.
   * @param event.name the lock's name
   * @param event.lockedBy the token of the acquisition that ended
   */
  lost?(event: { name: string; lockedBy: string }): void
  /**
   * A command failed that nothing depends on any more, or that will be retried.
   * @param event.name the lock's name
   * @param event.action `extend`: one by the watchdog, which retries; `unlock`: the lock then expires
   * @param event.error the provider's error
   */
  failed?(event: { name: string; action: 'extend' | 'unlock'; error: unknown }): void
}

/** Observers notified by every executor in the process. */
export const ofAllExecutors = new Set<LockObserver>()

/**
 * Registers an observer with every executor in the process, whoever created it: for metrics of a whole process. If it is also an
 * executor's own observer, it is notified twice.
 * @returns a function that ends this
 */
export function observeLocks(observer: LockObserver): () => void {
  ofAllExecutors.add(observer)
  return () => void ofAllExecutors.delete(observer)
}

export type LockEvent<K extends keyof LockObserver> = Parameters<NonNullable<LockObserver[K]>>[0]
