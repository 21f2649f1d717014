import { StepAborted } from '../phases/index.js'
import type { RunDocument, RunOutcome } from './documents.js'
import { RunLockLost, RunTimeout } from './errors.js'
import type { RunEndReason } from './observer.js'
import { runErrorOf } from './run-record.js'
import type { RunCallback, TaskWithCallbacks } from './tasks.js'

/** The author of a request to stop, as shown in the document's history. */
const BY_RUN = 'its run'

/** True for a timeout and a lost lock, which are the run's own failure; all other aborts come from the replica. */
export const isItsOwn = (error: unknown) => error instanceof RunTimeout || error instanceof RunLockLost

/** True if a user cancelled the run: no further try is made. */
export const isCancel = (reason: unknown) => reason instanceof StepAborted && reason.why === 'cancelled'

/** The stop request of a cancelled run, in the words of the person who cancelled it; the run passes it to its document. */
export const cancelled = ({ reason }: AbortSignal): NonNullable<RunDocument['stopping']> => {
  return { why: 'cancelled', by: BY_RUN, reason: (reason as Error).message.slice(0, 500), error: runErrorOf(reason) }
}

export const ofItsOwn = (error: Error): NonNullable<RunDocument['stopping']> => {
  const why = error instanceof RunTimeout ? 'timeout' : 'lockLost'
  return { why, by: BY_RUN, reason: error.message.slice(0, 500), error: runErrorOf(error) }
}

export function whyFailed(error: unknown): RunEndReason {
  if (error instanceof RunTimeout) return 'timeout'
  return error instanceof RunLockLost ? 'lockLost' : 'error'
}

/** The delay of a run's start. Manual runs have no jitter to wait for. */
export function lateMs({ scheduledFor, trigger, jitterMs = 0 }: Readonly<RunDocument>, startedAt: Date): number {
  if (trigger === 'backfill') return 0
  const meant = scheduledFor.getTime() + (trigger === 'manual' ? 0 : jitterMs)
  return Math.max(0, startedAt.getTime() - meant)
}

const CALLBACKS = { Completed: 'onSuccess', Failed: 'onFailure', Missed: 'onMissed', Skipped: undefined } as const

export function callbackOf<Context>(
  task: TaskWithCallbacks<Context>,
  outcome: RunOutcome,
): RunCallback<Context> | undefined {
  const name = CALLBACKS[outcome]
  return name && task[name]
}
