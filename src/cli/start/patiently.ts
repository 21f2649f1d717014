import type { Settings } from '../../config/index.js'
import { DatabaseUnreachable, isOutage } from '../../database/index.js'
import type { Logger } from '../../phases/index.js'
import { formatMs, sleep, systemClock } from '../../time/index.js'

const PAUSE_MS = 500
/** The smallest allowed value of the setting. */
const LEAST_MS = 100

/**
 * Starts something that needs the database, and tries again while that doesn't answer (an election, a server that is starting), for
 * `connectTimeout` in all.
 * @throws what `start` throws: an outage once the time is over, anything else immediately
 */
export async function patiently<T>(
  settings: Settings,
  logger: Logger,
  start: (settings: Settings) => Promise<T>,
): Promise<T> {
  const untilMs = systemClock.monotonicMs() + settings.connectTimeout
  const leftMs = () => Math.max(0, untilMs - systemClock.monotonicMs())
  for (;;) {
    try {
      return await start({ ...settings, connectTimeout: Math.max(LEAST_MS, Math.ceil(leftMs())) })
    } catch (error) {
      if (!isPassing(error) || leftMs() < PAUSE_MS) throw error
      logger.warn(`the database doesn't answer; trying again for up to ${formatMs(leftMs())}: ${String(error)}`)
      await sleep(PAUSE_MS)
    }
  }
}

function isPassing(error: unknown): boolean {
  if (error instanceof DatabaseUnreachable) return error.reason !== 'authentication' && error.reason !== 'no-such-host'
  return isOutage(error)
}
