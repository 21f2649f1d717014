import { durationMs } from '../../time/index.js'
import { UsageError } from '../system/errors.js'
import type { OperationAction } from './operation.js'
import { GROWTH, MOST_WATCHED } from './trial.js'

interface Asked {
  readonly first?: number | undefined
  readonly watch?: string | undefined
}

/** The actions after which a step of a document runs, so that there is an outcome to wait for. */
const TRIED: readonly string[] = ['wake', 'unpark', 'set-state', 'redo', 'migrate']
export const DEFAULT_WATCH = '2m'
const SHORTEST_WATCH_MS = 1_000
const LONGEST_WATCH_MS = 24 * 3_600_000

/** @throws UsageError */
export function requireTrial(action: OperationAction, { first, watch }: Asked): void {
  if (first === undefined) {
    if (watch === undefined) return
    throw new UsageError('watch (--watch-for): expected first (--first) too, the number of documents to watch')
  }
  if (!Number.isSafeInteger(first) || first < 1 || first > MOST_WATCHED)
    throw new UsageError(`first (--first): expected a whole number from 1 to ${MOST_WATCHED}, got ${first}`)
  const ms = durationMs(watch ?? DEFAULT_WATCH, 'watch (--watch-for)')
  if (ms < SHORTEST_WATCH_MS || ms > LONGEST_WATCH_MS)
    throw new UsageError(`watch (--watch-for): expected a duration from 1s to 24h, got '${watch}'`)
  if (!TRIED.includes(action))
    throw new UsageError(
      `first (--first): expected an action after which a step runs (${TRIED.join(', ')}), got '${action}'`,
    )
}

/** The fields of an operation with a trial. */
export const trialOf = ({ first: size, watch = DEFAULT_WATCH }: Asked) =>
  size === undefined ? {} : { trial: { size, done: 0, watched: [], watchMs: durationMs(watch) } }

/** The number of batches of a trial that are followed by another one, and so watched to the end. */
export function batchesOf(first: number, count: number): number {
  let watched = 0
  for (let size = first, done = first; done <= count; size *= GROWTH, done += size) watched += 1
  return watched
}
