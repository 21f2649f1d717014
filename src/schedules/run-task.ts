import { NotAttached, Unavailable } from '../phases/index.js'
import { sleep } from '../time/index.js'
import { LONGEST_RUN_MS } from './definition/read-schedule.js'
import type { RunDocument } from './documents.js'
import { RunLockLost, RunTimeout } from './errors.js'
import { isItsOwn } from './run-ends.js'
import type { RunLock } from './run-lock.js'
import { errorOf, type RunRecord } from './run-record.js'
import type { Starter } from './starter.js'
import { starterOf } from './starts.js'
import type { TaskRun, TaskWithCallbacks } from './tasks.js'

/** The time that a task gets to end after its signal has aborted; then its run fails without waiting for it. */
const PATIENCE_MS = 10_000

/** The end of one try. */
export type Tried =
  | { readonly kind: 'returned'; readonly value: unknown }
  | { readonly kind: 'threw'; readonly error: unknown }
  /** It ignores its signal: it is still running, and keeps its lock until it ends. */
  | { readonly kind: 'abandoned'; readonly error: Error }

export interface TryOptions<Context> {
  readonly task: TaskWithCallbacks<Context>
  readonly run: Readonly<RunDocument>
  readonly lock: RunLock
  readonly record: RunRecord
  readonly context: () => Context | Promise<Context>
  /** The signal of the engine's step: it aborts when the lease is lost or the process ends. */
  readonly signal: AbortSignal
}

/** Runs a task once, under its lock and within its timeout. Never rejects. */
export async function tryTask<Context>(options: TryOptions<Context>): Promise<Tried> {
  const { task, run, lock, record, context, signal } = options
  const stop = new AbortController()
  const over = new AbortController()
  const all = AbortSignal.any([signal, stop.signal])
  lock.watch(() => stop.abort(new RunLockLost(lock.name)))
  const timeoutMs = run.timeoutMs ?? LONGEST_RUN_MS
  void sleep(timeoutMs, { signal: over.signal, unref: true }).then(() => {
    if (!over.signal.aborted) stop.abort(new RunTimeout(timeoutMs, false))
  })
  const { _id: id, schedule, scheduledFor, trigger, attempt = 1 } = run
  const taskRun = (found: Context): TaskRun<Context> => ({
    ...{ id, schedule, scheduledFor, trigger, attempt },
    fence: lock.fence,
    signal: all,
    context: found,
    log: (message, fields) => record.log(message, fields),
    count: (counter, by) => record.count(counter, by),
  })
  const work = starterOf(task.run)?.start ?? task.run
  const settled = (async () => work(structuredClone(run.args), taskRun(await context())))().then(
    (value): Tried => ({ kind: 'returned', value }),
    (error: unknown): Tried => ({ kind: 'threw', error: errorOf(error) }),
  )
  const gaveUp = new Promise<Tried>((resolve) => {
    const giveUp = async () => {
      await sleep(PATIENCE_MS, { signal: over.signal, unref: true })
      const { reason } = stop.signal
      resolve({
        kind: 'abandoned',
        error: reason instanceof RunTimeout ? new RunTimeout(reason.afterMs, true) : reason,
      })
    }
    stop.signal.addEventListener('abort', () => !over.signal.aborted && giveUp(), { once: true })
  })
  const tried = await Promise.race([settled, gaveUp])
  over.abort()
  if (tried.kind === 'abandoned') void settled.then(() => lock.release())
  // A task that ended because its signal aborted has failed for that reason, whatever it threw or returned.
  else if (stop.signal.aborted) return { kind: 'threw', error: stop.signal.reason }
  return tried
}

/**
 * The same of a task that starts a document. Invariant: a try has failed only where its document isn't there: an insert that failed may have been
 * executed, and only its answer lost.
 * @param isThere whether it is known to be there already: then nothing is tried
 * @throws Unavailable: it can't be known now
 */
export async function tryToStart<Context>(
  starter: Starter,
  isThere: boolean,
  options: TryOptions<Context>,
): Promise<Tried> {
  const { run, lock, signal } = options
  const started: Tried = { kind: 'returned', value: starter.of(run) }
  if (isThere) return started
  const tried = await tryTask(options)
  if (tried.kind !== 'threw' || tried.error instanceof NotAttached || signal.aborted || isItsOwn(tried.error))
    return tried
  try {
    return (await starter.isThere(run)) ? started : tried
  } catch (error) {
    // Whoever goes on with the run enters the lock that carries its id.
    lock.forget()
    const problem = `whether it has started its document isn't known: ${errorOf(error).message}`
    throw new Unavailable(problem.slice(0, 500), { retryAfter: '1s', cause: error })
  }
}
