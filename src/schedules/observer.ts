import { tellObservers } from '../observers/index.js'
import type { Logger } from '../phases/index.js'
import type { RunDocument } from './documents.js'

/** How runs end, and why. */
export const RUN_ENDS = {
  /** The task returned. */
  Completed: ['done'],
  /** It started, and no try succeeded. */
  Failed: ['error', 'timeout', 'lockLost', 'lockTaken', 'replicasLost', 'cancelled', 'removed'],
  /** It never started, and wasn't to. */
  Skipped: ['overlap', 'coalesced', 'edited', 'paused', 'deactivated', 'deleted', 'aborted'],
  /** It never started, though it was to. */
  Missed: ['late', 'unknownTask'],
} as const

/**
 * Why a run ended as it did: `overlap`, another run held the lock; `lockTaken`, the same, but on a further try or after its replica was
 * lost; `removed`, what it has started is gone; `late`, later than misfireGraceTime allows; `unknownTask`, no replica knows the task and many runs wait already.
 */
export type RunEndReason = (typeof RUN_ENDS)[keyof typeof RUN_ENDS][number]

/** A run, as observers get it. */
export interface ObservedRun {
  /** The schedule's id. */
  readonly schedule: string
  /** `<schedule>@<due time>`. */
  readonly run: string
  /** The name of its task, which this process needn't know. */
  readonly task: string
  /** 'schedule': it was due; 'manual': somebody asked; 'backfill': somebody asked for all due times of a range. */
  readonly trigger: 'schedule' | 'manual' | 'backfill'
}

/**
 * Called for runs by the replica that works on them, for metrics and logs; what it throws or rejects with is logged and dropped.
 * If a run's replica loses its lease at that moment, the next one may report it too.
 */
export interface ScheduleObserver {
  /**
   * A run's first try begins.
   * @param event.lateMs how long after it was due (a manual one: after it was asked for; of a backfill: 0); `jitter` is no lateness
   */
  started?(event: ObservedRun & { readonly lateMs: number }): void
  /**
   * A try has failed, and there will be another.
   * @param event.attempt which try it was, from 1
   */
  retried?(event: ObservedRun & { readonly attempt: number }): void
  /**
   * A run is over.
   * @param event.outcome how it ended
   * @param event.why one of the reasons that there are for this outcome
   */
  ended?(event: ObservedRun & { readonly outcome: keyof typeof RUN_ENDS; readonly why: RunEndReason }): void
  /**
   * A command on the lock of a run has failed.
   * @param event.lock the lock's name
   * @param event.action `extend`: it is tried again; `unlock`: the lock ends by itself
   * @param event.error what the lock provider threw
   */
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
