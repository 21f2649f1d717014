import { tellObservers } from '../observers/index.js'

/**
 * Told of what an executor does, for metrics and logs; what it throws or rejects with harms nobody. Each call of `executeWithLock` that asks for a
 * lock ends in one of `acquired`, `notAcquired` and `unavailable`; each `acquired` is followed by one `finished`.
 */
export interface LockObserver {
  acquired?(event: { name: string; lockedBy: string; fence: number; waitedMs: number }): void
  /** `held`: somebody else has it, and nobody wanted to wait; `timedOut`: also after `waitFor`; `aborted`: `signal` ended the waiting. */
  notAcquired?(event: {
    name: string
    heldBy: string | undefined
    waitedMs: number
    why: 'held' | 'timedOut' | 'aborted'
  }): void
  /** Whether somebody has it couldn't be told: the locks' server is away. Nothing was run, the caller has the error. */
  unavailable?(event: { name: string; waitedMs: number; error: unknown }): void
  /** The task has ended; told before its lock is freed. */
  finished?(event: { name: string; lockedBy: string; ms: number; failed: boolean }): void
  /** The lock ended before its task: it expired, was freed, or could not be extended in time. */
  lost?(event: { name: string; lockedBy: string }): void
  /** A command failed that nothing depends on any more, or that is sent again: an extension of the watchdog, an unlock. */
  failed?(event: { name: string; action: 'extend' | 'unlock'; error: unknown }): void
}

const ofAllExecutors = new Set<LockObserver>()

/**
 * Tells this observer of every executor in the process, whoever made it: for metrics of a whole process. One that is also an
 * executor's own observer is told twice.
 * @returns ends it
 */
export function observeLocks(observer: LockObserver): () => void {
  ofAllExecutors.add(observer)
  return () => void ofAllExecutors.delete(observer)
}

export type LockEvent<K extends keyof LockObserver> = Parameters<NonNullable<LockObserver[K]>>[0]

export function tellLockObservers<K extends keyof LockObserver>(
  own: readonly LockObserver[],
  what: K,
  event: LockEvent<K>,
): void {
  // What one throws is its own fault.
  tellObservers([...own, ...ofAllExecutors], what, event, () => undefined)
}
