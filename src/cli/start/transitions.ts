import type { Logger, ReplicaObserver } from '../../phases/index.js'
import { type Clock, systemClock } from '../../time/index.js'

/** The maximum number of lines per second; further transitions are counted, and reported with the next line. */
const LINES_A_SECOND = 20

/** Logs a line whenever a document moves from one phase to another on this replica, for a person who watches. */
export function logTransitions(logger: Logger, clock: Clock = systemClock): ReplicaObserver {
  let since = Number.NEGATIVE_INFINITY
  let lines = 0
  let suppressed = 0
  return {
    stepEnded({ lifecycle, id, phase, to, ms }) {
      if (to === phase) return
      if (clock.monotonicMs() - since >= 1_000) {
        if (suppressed > 0) logger.info(`${suppressed} more documents moved; a second shows ${LINES_A_SECOND} of them`)
        since = clock.monotonicMs()
        lines = 0
        suppressed = 0
      }
      lines += 1
      if (lines > LINES_A_SECOND) suppressed += 1
      else logger.info(`${lifecycle} ${String(id)}: ${phase} -> ${to}`, { ms: Math.round(ms) })
    },
  }
}
