import type { Collection } from 'mongodb'
import type { Step } from '../phases/index.js'
import { continueBackfill } from './backfill.js'
import {
  type LastEnd,
  present,
  type RunDocument,
  type RunOutcome,
  type ScheduleDocument,
  serverTime,
} from './documents.js'
import { observedRun, type RunEndReason } from './observer.js'
import { callbackOf } from './run-ends.js'
import type { RunLock } from './run-lock.js'
import { runErrorOf } from './run-record.js'
import type { TaskWithCallbacks } from './tasks.js'
import type { Workplace } from './workplace.js'

export type QueuedStep = Step<'Running' | RunOutcome, RunDocument>
export type RunningStep = Step<'Queued' | RunOutcome, RunDocument>
export type Fields = Partial<Omit<RunDocument, '_id'>>

/** The end of a run: its outcome, its callbacks, and what follows it. */
export class RunEnding<Context> {
  constructor(private readonly workplace: Workplace<Context>) {}

  /** Stores the outcome, frees the lock, then calls back: after a crash in between, only the rest is repeated. */
  async end(
    run: Readonly<RunDocument>,
    step: QueuedStep | RunningStep,
    task: TaskWithCallbacks<Context>,
    outcome: RunOutcome,
    why: RunEndReason,
    fields: Fields,
    now: () => Date = () => serverTime(run),
    lock?: RunLock,
  ) {
    const completedAt = now()
    const set: Fields = {
      ...fields,
      outcome,
      completedAt,
      ...(run.startedAt ? { durationMs: Math.max(0, completedAt.getTime() - run.startedAt.getTime()) } : {}),
    }
    const tell = () => this.workplace.observers.tell('ended', { ...observedRun(run), outcome, why })
    if (!lock && !callbackOf(task, outcome)) {
      await this.goOn({ ...run, ...set })
      tell()
      return moved(step, outcome, set)
    }
    try {
      await step.checkpoint(set)
      tell()
    } finally {
      await lock?.release()
    }
    return this.callBack({ ...run, ...set } as RunDocument, step, task, outcome)
  }

  async callBack(
    run: Readonly<RunDocument>,
    step: QueuedStep | RunningStep,
    task: TaskWithCallbacks<Context>,
    outcome: RunOutcome,
  ) {
    await this.goOn(run)
    const callback = callbackOf(task, outcome)
    if (!callback) return moved(step, outcome, {})
    try {
      await callback(run, await this.workplace.context())
      return moved(step, outcome, {})
    } catch (thrown) {
      const error = runErrorOf(thrown)
      this.workplace.logger.warn(`a callback of run ${run._id} failed: ${error.name}: ${error.message}`, {
        run: run._id,
      })
      return moved(step, outcome, { callbackError: error })
    }
  }

  /**
   * Records in the schedule how the run ended, and begins the next run of a backfill. It precedes the change of the run's phase, so a crash
   * repeats it.
   */
  private async goOn(run: Readonly<RunDocument>): Promise<void> {
    const { schedules, runs, store } = this.workplace
    await recordLastEnd(schedules(), run)
    await continueBackfill({ schedules, runs, insertRun: store.insertRun }, run)
  }
}

/** Both phases may go to each of the outcomes. */
function moved(step: QueuedStep | RunningStep, outcome: RunOutcome, set: Fields) {
  return (step as Step<RunOutcome, RunDocument>).moveTo(outcome, { set })
}

const MOST_OF_A_MESSAGE = 500

/**
 * Stores the end of a run in its schedule, if the run was Completed or Failed and no later end of this kind is stored. So it may be
 * repeated, and runs that end at the same time may come in any order.
 */
async function recordLastEnd(
  schedules: Collection<ScheduleDocument>,
  { _id, schedule, outcome, completedAt, scheduledFor, durationMs, error }: Readonly<RunDocument>,
): Promise<void> {
  if ((outcome !== 'Completed' && outcome !== 'Failed') || !completedAt) return
  const kept = error ? { name: error.name, message: error.message.slice(0, MOST_OF_A_MESSAGE) } : undefined
  const end: LastEnd = { run: _id, at: completedAt, scheduledFor, ...present({ durationMs, error: kept }) }
  const [name, also] =
    outcome === 'Completed'
      ? (['lastSuccess', { lastSuccessAt: completedAt }] as const)
      : (['lastFailure', {}] as const)
  await schedules.updateOne({ _id: schedule, [`${name}.at`]: { $not: { $gt: completedAt } } } as object, {
    $set: { [name]: end, ...also },
  })
}
