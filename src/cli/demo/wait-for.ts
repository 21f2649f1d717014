import { sleep, systemClock } from '../../time/index.js'

/** On a machine that is ever so busy something moves within this time. */
const PATIENCE_MS = 60_000

export interface Patience {
  /**
   * Anything that is another while there is progress: the patience then begins anew, so that what is slow has time, and only
   * what stands still is given up.
   */
  readonly progress?: () => unknown
  /** Without progress. Default one minute. */
  readonly forMs?: number
  readonly everyMs?: number
}

/** Looks every `everyMs` until there is a value other than undefined or false; without progress for too long the answer is undefined. */
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
