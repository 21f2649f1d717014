import { sleep, systemClock } from '../../dist/time/index.js'

/** The time without progress after which to give up: even on a very busy machine something moves within it. */
const PATIENCE_MS = 60_000

export interface Patience {
  /**
   * A value that changes while there is progress: the wait then starts over, so that slow work gets its time, and
   * only a standstill is given up.
   */
  readonly progress?: () => unknown
  /** The time to wait without progress. Default one minute. */
  readonly forMs?: number
  readonly everyMs?: number
}

/** Looks every `everyMs` for a value other than undefined or false; resolves to undefined after too long without progress. */
export async function waitFor<T>(
  look: () => T | undefined | false | Promise<T | undefined | false>,
  { progress = () => undefined, forMs = PATIENCE_MS, everyMs = 50 }: Patience = {},
): Promise<T | undefined> {
  let before = await progress()
  let sinceMs = systemClock.monotonicMs()
  for (;;) {
    const value = await look()
    if (value !== undefined && value !== false) return value
    const now = await progress()
    if (now !== before) {
      before = now
      sinceMs = systemClock.monotonicMs()
    } else if (systemClock.monotonicMs() - sinceMs >= forMs) return undefined
    await sleep(everyMs)
  }
}
