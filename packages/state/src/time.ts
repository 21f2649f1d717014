import type { Clock } from 'phaselock'

/** The clocks of this process. They decide nothing that the server's clock decides: a value may only leave a layer sooner by them. */
export const systemClock: Clock = { now: () => new Date(), monotonicMs: () => performance.now() }

/** Resolves after `ms`, or as soon as `signal` aborts. @param unref true: the process may end before that */
export function sleep(ms: number, signal?: AbortSignal, unref = false): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    if (unref) timer.unref()
    signal?.addEventListener('abort', done, { once: true })
  })
}
