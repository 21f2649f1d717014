import { tellObservers } from '../observers/index.js'
import type { Logger } from '../phases/index.js'
import type { RunDocument } from './documents.js'

/** The outcomes of runs, each with its possible reasons. */
export const RUN_ENDS = {
  /** The task returned. */
  Completed: ['done'],
  /** It started, and no try succeeded. */
  Failed: ['error', 'timeout', 'lockLost', 'lockTaken', 'replicasLost', 'cancelled', 'removed'],
  /** It never started, and was not meant to. */
  Skipped: ['overlap', 'coalesced', 'edited', 'paused', 'deactivated', 'deleted', 'aborted'],
  /** It never started, although it was meant to. */
  Missed: ['late', 'unknownTask'],
} as const

/**
 * The reason of a run's outcome. `overlap`: another run held the lock. `lockTaken`: the same, but on a further try or after its replica was
 * lost. `removed`: the document that it started is gone. `late`: later than misfireGraceTime allows. `unknownTask`: no replica knows the
 * task, and many runs are waiting already.
 */
export type RunEndReason = (typeof RUN_ENDS)[keyof typeof RUN_ENDS][number]

/** A run, as observers get it. */
export interface ObservedRun {
  /** The schedule's id. */
  readonly schedule: string
  /** `<schedule>@<due time>`. */
  readonly run: string
  /** The name of its task, which this process may not know. */
  readonly task: string
  /** The trigger: 'schedule' if it was due, 'manual' if it was requested, 'backfill' if all due times of a range were requested. */
  readonly trigger: 'schedule' | 'manual' | 'backfill'
}

/**
 * Callbacks for metrics and logs, called by the replica that works on a run. If one throws or rejects, the error is logged and dropped. If
 * a run's replica loses its lease at that moment, the next replica may report the same event again.
 */
export interface ScheduleObserver {
  /**
   * A run's first try begins.
   * @param event.lateMs the time since it was due (manual: since it was requested; backfill: 0); `jitter` is no lateness
   */
  started?(event: ObservedRun & { readonly lateMs: number }): void
  /**
   * A try has failed, and another one will follow.
   * @param event.attempt the number of the try, from 1
   */
  retried?(event: ObservedRun & { readonly attempt: number }): void
  /**
   * A run is over.
   * @param event.outcome its outcome
   * @param event.why one of the possible reasons of this outcome
   */
  ended?(event: ObservedRun & { readonly outcome: keyof typeof RUN_ENDS; readonly why: RunEndReason }): void
  /**
   * A command on the lock of a run has failed.
   * @param event.lock the lock's name
   * @param event.action `extend`: it is tried again; `unlock`: the lock expires
   * @param event.error what the lock provider threw
   */
  lockFailed?(event: { readonly lock: string; readonly action: 'extend' | 'unlock'; readonly error: unknown }): void
}

export class ScheduleObservers {
  private readonly all = new Set<ScheduleObserver>()

  constructor(private readonly logger: Logger) {}

  /** @returns a function that removes the observer */
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
