import { StepAborted } from '../phases/index.js'
import type { RunDocument, RunOutcome } from './documents.js'
import { RunLockLost, RunTimeout } from './errors.js'
import type { RunEndReason } from './observer.js'
import { runErrorOf } from './run-record.js'
import type { RunCallback, TaskWithCallbacks } from './tasks.js'

/** Who asks a document to stop, as its history has it. */
const BY_RUN = 'its run'

/** A timeout and a lost lock are the run's own failure; all other aborts come from the replica. */
export const isItsOwn = (error: unknown) => error instanceof RunTimeout || error instanceof RunLockLost

/** By a person: no further try is made. */
export const isCancel = (reason: unknown) => reason instanceof StepAborted && reason.why === 'cancelled'

/** In the words of whoever asked; the document is told by the run. */
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

/** Manual runs have no jitter to wait for. */
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
