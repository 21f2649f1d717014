import type { Settings } from '../../config/index.js'
import { DatabaseUnreachable } from '../../database/index.js'
import type { Logger } from '../../phases/index.js'
import { formatMs, sleep, systemClock } from '../../time/index.js'

const PAUSE_MS = 500
/** The least that the setting may be. */
const LEAST_MS = 100
/** What a server answers while no member is primary: NotWritablePrimary, NotPrimaryNoSecondaryOk, and those of a change of state. */
const NO_PRIMARY = [91, 189, 10_107, 11_600, 11_602, 13_435, 13_436]

/**
 * Starts something that needs the database, again and again while that doesn't answer (an election, a server that is starting), for
 * `connectTimeout` in all.
 * @throws what `start` throws: an outage once the time is over, anything else at once
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
      if (!isOutage(error) || leftMs() < PAUSE_MS) throw error
      logger.warn(`the database doesn't answer; trying again for up to ${formatMs(leftMs())}: ${String(error)}`)
      await sleep(PAUSE_MS)
    }
  }
}

function isOutage(error: unknown): boolean {
  if (error instanceof DatabaseUnreachable) return error.reason !== 'authentication' && error.reason !== 'no-such-host'
  const { name = '', code } = (error ?? {}) as { name?: string; code?: unknown }
  return (
    /^(NoAnswer|MongoNetwork|MongoServerSelection|MongoPool|MongoWaitQueue)/.test(name) ||
    NO_PRIMARY.includes(code as number)
  )
}
