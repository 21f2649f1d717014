/**
 * A source of time. Phaselock decides nothing by a replica's wall clock: the database's `$$NOW` decides. A replica's monotonic
 * clock may only make it stop sooner (see docs/lock-protocol.md), and its wall clock is for log lines.
 */
export interface Clock {
  /** Wall time, for people to read. */
  now(): Date
  /** Milliseconds since some fixed moment, never going back; they go on while the process is paused. */
  monotonicMs(): number
}

export const systemClock: Clock = {
  now: () => new Date(),
  monotonicMs: () => performance.now(),
}

/** Monotonic milliseconds that mean the same in all threads of this process (each has a `performance.now()` of its own). */
export const processMs = (): number => Number(process.hrtime.bigint()) / 1_000_000

/** The longest time that Node's timers accept: they fire immediately if asked for more. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

/**
 * Resolves after `ms` (or 24.8 days, if that is sooner), or as soon as `signal` aborts (it doesn't reject: the caller checks the signal).
 * With `unref` the timer doesn't keep the process alive. It is the global timer, which fake timers replace; that of node:timers/promises isn't.
 */
export function sleep(ms: number, options: { signal?: AbortSignal; unref?: boolean } = {}): Promise<void> {
  return new Promise((resolve) => {
    if (options.signal?.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      options.signal?.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, Math.min(ms, LONGEST_TIMER_MS))
    if (options.unref) timer.unref()
    options.signal?.addEventListener('abort', done, { once: true })
  })
}
