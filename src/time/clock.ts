/**
 * What tells the time. Phaselock decides nothing by a replica's wall clock: the database's `$$NOW` decides. A replica's
 * monotonic clock may only make it stop sooner (see docs/lock-protocol.md), and its wall clock is for log lines.
 */
export interface Clock {
  /** Wall time, for people to read. */
  now(): Date
  /** Milliseconds since some fixed moment, never going back; it stands still for nobody, also not while paused. */
  monotonicMs(): number
}

export const systemClock: Clock = {
  now: () => new Date(),
  monotonicMs: () => performance.now(),
}

/** Monotonic milliseconds that mean the same in all threads of this process (each has a `performance.now()` of its own). */
export const processMs = (): number => Number(process.hrtime.bigint()) / 1_000_000

/** Node's timers end at once when they are asked for more. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

/**
 * Resolves after `ms` (or 24.8 days, where that comes first), or as soon as `signal` aborts (then too it resolves: the caller looks at the signal).
 * The timer doesn't keep the process alive when `unref` is set.
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
