import { tellObservers } from '../observers/index.js'
import type { Logger } from '../phases/index.js'
import type { RunDocument } from './documents.js'

/**
 * How runs end, and why: `overlap`, another run held the lock; `lockTaken`, the same, but on a further try or after its replica was
 * lost; `late`, later than misfireGraceTime allows; `unknownTask`, no replica knows the task and many runs wait already.
 */
export const RUN_ENDS = {
  Completed: ['done'],
  Failed: ['error', 'timeout', 'lockLost', 'lockTaken', 'replicasLost'],
  Skipped: ['overlap', 'coalesced', 'paused', 'deactivated', 'deleted'],
  Missed: ['late', 'unknownTask'],
} as const

export type RunEndReason = (typeof RUN_ENDS)[keyof typeof RUN_ENDS][number]

/** A run, as observers get it. */
export interface ObservedRun {
  readonly schedule: string
  /** `<schedule>@<due time>`. */
  readonly run: string
  readonly task: string
  readonly trigger: 'schedule' | 'manual'
}

/**
 * Called for runs by the replica that works on them, for metrics and logs; what it throws or rejects with is logged and dropped.
 * If a run's replica loses its lease at that moment, the next one may report it too.
 */
export interface ScheduleObserver {
  /** A run's first try begins, this long after it was due (a manual one: after it was asked for); `jitter` is no lateness. */
  started?(event: ObservedRun & { readonly lateMs: number }): void
  /** A try has failed, and there will be another. */
  retried?(event: ObservedRun & { readonly attempt: number }): void
  /** A run is over. */
  ended?(event: ObservedRun & { readonly outcome: keyof typeof RUN_ENDS; readonly why: RunEndReason }): void
  /** The lock of a run could not be extended (it is tried again) or freed (it ends by itself). */
  lockFailed?(event: { readonly lock: string; readonly action: 'extend' | 'unlock'; readonly error: unknown }): void
}

export class ScheduleObservers {
  private readonly all = new Set<ScheduleObserver>()

  constructor(private readonly logger: Logger) {}

  /** @returns ends it */
  add(observer: ScheduleObserver): () => void {
    this.all.add(observer)
    return () => void this.all.delete(observer)
  }

  tell<K extends keyof ScheduleObserver>(what: K, event: Parameters<NonNullable<ScheduleObserver[K]>>[0]): void {
    tellObservers(this.all, what, event, (error) => this.logger.error(`an observer's ${what} threw: ${String(error)}`))
  }
}

export const observedRun = ({ _id, schedule, task, trigger }: Readonly<RunDocument>): ObservedRun => {
  return { run: _id, schedule, task, trigger }
}
