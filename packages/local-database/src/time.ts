/** Milliseconds since some fixed moment, never going back. */
export const monotonicMs = (): number => performance.now()

/** The current time in readable form. */
export const timeText = (): string => new Date().toISOString()

/**
 * Resolves after `ms`, or as soon as `signal` aborts (it resolves then too: the caller checks the signal). With `unref` the timer
 * doesn't keep the process alive.
 */
export function sleep(ms: number, options: { signal?: AbortSignal; unref?: boolean } = {}): Promise<void> {
  return new Promise((resolve) => {
    if (options.signal?.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      options.signal?.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    if (options.unref) timer.unref()
    options.signal?.addEventListener('abort', done, { once: true })
  })
}
