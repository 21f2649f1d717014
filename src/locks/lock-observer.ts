/**
 * Observes what an executor does, for metrics and logs; what it throws or rejects with is ignored. Each call of `executeWithLock` that
 * asks for a lock ends in one of `acquired`, `notAcquired` and `unavailable`; each `acquired` is followed by one `finished`.
 */
export interface LockObserver {
  acquired?(event: { name: string; lockedBy: string; fence: number; waitedMs: number }): void
  /** `held`: somebody else has it, and there was no `waitFor`; `timedOut`: it was still held after `waitFor`; `aborted`: `signal` ended the wait. */
  notAcquired?(event: {
    name: string
    heldBy: string | undefined
    waitedMs: number
    why: 'held' | 'timedOut' | 'aborted'
  }): void
  /** The locks' server is away, so whether somebody has the lock is unknown. Nothing was run, and the caller gets the error. */
  unavailable?(event: { name: string; waitedMs: number; error: unknown }): void
  /** The task has ended; called before its lock is freed. */
  finished?(event: { name: string; lockedBy: string; ms: number; failed: boolean }): void
  /** The lock ended before its task: it expired, was freed, or could not be extended in time. */
  lost?(event: { name: string; lockedBy: string }): void
  /** A command failed that nothing depends on any more, or that is sent again: an unlock, or an extension by the watchdog. */
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
