/**
 * Observes what an executor does, for metrics and logs; what it throws or rejects with is ignored. Each call of `executeWithLock` that
 * asks for a lock ends in one of `acquired`, `notAcquired` and `unavailable`; each `acquired` is followed by one `finished`.
 */
export interface LockObserver {
  /**
   * The lock was granted, and the task begins.
   * @param event.name the lock's
   * @param event.lockedBy the token of this acquisition
   * @param event.fence of this acquisition, as the task gets it
   * @param event.waitedMs from the call of `executeWithLock` to the grant
   */
  acquired?(event: { name: string; lockedBy: string; fence: number; waitedMs: number }): void
  /**
   * Somebody else has the lock, and the task isn't run.
   * @param event.name the lock's
   * @param event.heldBy the holder's token; undefined: the store couldn't say, or nobody has it by now
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
   * The locks' server is away, so whether somebody has the lock is unknown. Nothing was run, and the caller gets the error.
   * @param event.name the lock's
   * @param event.waitedMs from the call of `executeWithLock` to the error
   * @param event.error what the provider threw, as a rule LockProviderUnavailable
   */
  unavailable?(event: { name: string; waitedMs: number; error: unknown }): void
  /**
   * The task has ended; called before its lock is freed.
   * @param event.name the lock's
   * @param event.lockedBy the token of the acquisition that it ran under
   * @param event.ms how long the task ran
   * @param event.failed whether it threw or rejected
   */
  finished?(event: { name: string; lockedBy: string; ms: number; failed: boolean }): void
  /**
   * The lock ended before its task: it expired, was freed, or could not be extended in time.
   * @param event.name the lock's
   * @param event.lockedBy the token of the acquisition that ended
   */
  lost?(event: { name: string; lockedBy: string }): void
  /**
   * A command failed that nothing depends on any more, or that is sent again.
   * @param event.name the lock's
   * @param event.action `extend`: one by the watchdog, which tries again; `unlock`: the lock then ends by itself
   * @param event.error what the provider threw
   */
  failed?(event: { name: string; action: 'extend' | 'unlock'; error: unknown }): void
}

/** Told by every executor in the process. */
export const ofAllExecutors = new Set<LockObserver>()

/**
 * Has this observer told by every executor in the process, whoever created it: for metrics of a whole process. If it is also an
 * executor's own observer, it is told twice.
 * @returns a function that ends this
 */
export function observeLocks(observer: LockObserver): () => void {
  ofAllExecutors.add(observer)
  return () => void ofAllExecutors.delete(observer)
}

export type LockEvent<K extends keyof LockObserver> = Parameters<NonNullable<LockObserver[K]>>[0]
