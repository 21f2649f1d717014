import { sleep, systemClock } from '../../time/index.js'

/** Looks every `everyMs` until there is a value other than undefined or false; after `forMs` the answer is undefined. */
export async function waitFor<T>(
  look: () => T | undefined | false | Promise<T | undefined | false>,
  { forMs, everyMs = 50 }: { forMs: number; everyMs?: number },
): Promise<T | undefined> {
  const endMs = systemClock.monotonicMs() + forMs
  for (;;) {
    const value = await look()
    if (value !== undefined && value !== false) return value
    if (systemClock.monotonicMs() >= endMs) return undefined
    await sleep(everyMs)
  }
}
