/** Milliseconds since some fixed moment, never going back. */
export const monotonicMs = (): number => performance.now()

/** For people to read. */
export const timeText = (): string => new Date().toISOString()

/**
 * Resolves after `ms`, or as soon as `signal` aborts (then too it resolves: the caller looks at the signal). The timer doesn't keep
 * the process alive when `unref` is set.
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
