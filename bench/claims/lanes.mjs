import { setTimeout as sleep } from 'node:timers/promises'

const IDLE_MS = 20
const AFTER_ERROR_MS = 100

/**
 * Calls `once` in so many endless lanes; it returns how much it has done, and a lane that did nothing or failed pauses.
 * @returns ends them after what is under way
 */
export function lanes(count, once) {
  let stopping = false
  const lane = async () => {
    while (!stopping) {
      const done = await once().catch(() => undefined)
      if (done === undefined) await sleep(AFTER_ERROR_MS)
      else if (done === 0) await sleep(IDLE_MS * (0.5 + Math.random()))
    }
  }
  const running = Array.from({ length: count }, lane)
  return async () => {
    stopping = true
    await Promise.all(running)
  }
}
