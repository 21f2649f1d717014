import type { Document } from 'mongodb'
import {
  type BackOffRule,
  DEFAULT_BACK_OFF,
  inProgress,
  isDate,
  isPastDate,
  LEAST_PAUSE_MS,
  type Terms,
} from '../terms/terms.js'

/**
 * The time that a waiting document sleeps until its next look: a share of the time waited so far (default a tenth) while that is within the
 * patience (default two minutes), the whole lockTimeout after that. Never longer than lockTimeout, nor shorter than the least wait, which is the
 * tick: a system that handlers ask is asked no more often than by a tick that looks at all that waits. Waited 0 s -> 1 s, 10 s -> 1 s, 30 s -> 3
 * s, 2 min -> 12 s, 3 min -> 30 s (with a lockTimeout of 30 s and a tick of 1 s).
 */
export function pauseMs(waitedMs: number, terms: Pick<Terms, 'lockTimeoutMs' | 'backOff' | 'leastWaitMs'>): number {
  const { lockTimeoutMs, backOff, leastWaitMs } = terms
  if (waitedMs > backOff.patienceMs) return lockTimeoutMs
  return Math.min(Math.max(leastWaitMs, Math.floor(waitedMs * backOff.share)), lockTimeoutMs)
}

/**
 * The pause after the `attempt`-th error in a row: 1 s x 2^(attempt - 1), at most 5 min, +-20 %, unless set otherwise.
 * Attempts 1, 2, 3, 9, 10: about 1 s, 2 s, 4 s, 4 min 16 s, 5 min; 20 attempts take 63 minutes.
 * @param random a number in [0, 1)
 */
export function errorPauseMs(attempt: number, random: number, rule: BackOffRule = DEFAULT_BACK_OFF): number {
  const pause = Math.min(rule.firstErrorMs * 2 ** (Math.max(1, attempt) - 1), rule.longestErrorMs)
  return Math.round(pause * (0.8 + 0.4 * random))
}

/** The longest pause between steps: a document that goes in circles costs next to nothing then, and a long chain goes on. */
const LONGEST_STEP_PAUSE_MS = 1_000

/** The pause after the `steps`-th step in a row, 100 ms to 1 s: doubled after each further `afterSteps` steps; undefined: no pause. */
export function stepPauseMs(steps: number, { afterSteps }: BackOffRule): number | undefined {
  if (steps < afterSteps) return undefined
  return Math.min(LEAST_PAUSE_MS * 2 ** (Math.floor(steps / afterSteps) - 1), LONGEST_STEP_PAUSE_MS)
}

/**
 * Time waited, on the server: now - the newest of `updatedAt`, `progress.at` and `progress.since` that is a date and not in the future; 0 if
 * there is no such date. A wait touches none of the three: otherwise its back-off would never grow.
 */
export function waitedMs(terms: Terms): Document {
  const dates = ['$updatedAt', inProgress(terms, 'at'), inProgress(terms, 'since')]
  const newest = { $max: { $filter: { input: dates, as: 'date', cond: isPastDate('$$date') } } }
  const sinceThen = { $subtract: ['$$NOW', '$$from'] }
  return { $let: { vars: { from: newest }, in: { $cond: [isDate('$$from'), sinceThen, 0] } } }
}

/** {@link pauseMs} of {@link waitedMs}, on the server. */
export function serverPauseMs(terms: Terms): Document {
  const { lockTimeoutMs, backOff, leastWaitMs } = terms
  const share = { $toLong: { $multiply: ['$$waited', backOff.share] } }
  const growing = { $min: [{ $max: [leastWaitMs, share] }, lockTimeoutMs] }
  const pause = { $cond: [{ $lte: ['$$waited', backOff.patienceMs] }, growing, lockTimeoutMs] }
  return { $let: { vars: { waited: waitedMs(terms) }, in: pause } }
}
