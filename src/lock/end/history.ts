import type { Document } from 'mongodb'
import { HISTORY_LIMIT } from '../terms/constants.js'
import { literal, type Terms } from '../terms/terms.js'

/** Why a document's record changed. */
export type RecordedOutcome =
  | 'again'
  | 'wait'
  | 'unavailable'
  | 'moveTo'
  | 'park'
  | 'error'
  | 'released'
  | 'checkpoint'
  | 'rule'
  | 'deadline'
  | 'owner'

/** One entry of `progress.history`, as it is read back. */
export interface HistoryEntry {
  at: Date
  from: string
  to: string
  /** The name of the step that ran; null when it has none. */
  step: string | null
  outcome: RecordedOutcome
  reason: string | null
  /** The token under which it was recorded, or 'rule', 'deadline' or whoever asked for it. */
  by: string
  /** How long the handler ran. */
  ms: number
  /** How many identical waits in a row this entry stands for. */
  count: number
}

export interface NewHistoryEntry {
  outcome: RecordedOutcome
  step: string | null
  reason: string | null
  by: string
  /** The phase that follows; the document stays in its phase when absent. */
  to?: string | undefined
  /** Milliseconds: a number, or an expression that gives each document its own. */
  ms: number | Document
}

/** Outcomes that, when identical several times in a row, are one entry with a count. */
const FOLDED: ReadonlySet<RecordedOutcome> = new Set(['wait', 'unavailable'])

/**
 * `progress.history` with one more entry: the newest 20 are kept, identical waits in a row are one with a count (and the
 * newest time and token). A history that is missing or not an array starts anew.
 */
export function historyWith(terms: Terms, entry: NewHistoryEntry): Document {
  const field = `$${terms.progress}.history`
  const now = terms.protocol.now()
  const added = {
    at: now,
    from: '$phase',
    to: entry.to === undefined ? '$phase' : literal(entry.to),
    step: literal(entry.step),
    outcome: literal(entry.outcome),
    reason: literal(entry.reason),
    by: literal(entry.by),
    ms: entry.ms,
    count: 1,
  }
  const appended = { $slice: [{ $concatArrays: ['$$kept', [added]] }, -HISTORY_LIMIT] }
  return {
    $let: {
      vars: { kept: { $cond: [{ $isArray: field }, { $slice: [field, -HISTORY_LIMIT] }, []] } },
      in: FOLDED.has(entry.outcome) ? folded(entry, now, appended) : appended,
    },
  }
}

function folded(entry: NewHistoryEntry, now: unknown, appended: Document): Document {
  const isAlike = {
    $and: [
      { $eq: ['$$last.outcome', literal(entry.outcome)] },
      { $eq: ['$$last.step', literal(entry.step)] },
      { $eq: ['$$last.reason', literal(entry.reason)] },
      { $eq: ['$$last.from', '$phase'] },
    ],
  }
  const counted = { $add: [{ $cond: [{ $isNumber: '$$last.count' }, '$$last.count', 1] }, 1] }
  const again = { $mergeObjects: ['$$last', { at: now, by: literal(entry.by), ms: entry.ms, count: counted }] }
  // $slice with a third argument of 0 is an error (28729), so a list of one entry has its own branch.
  const before = { $cond: [{ $lte: ['$$size', 1] }, [], { $slice: ['$$kept', { $subtract: ['$$size', 1] }] }] }
  return {
    $let: {
      vars: { last: { $last: '$$kept' }, size: { $size: '$$kept' } },
      in: { $cond: [isAlike, { $concatArrays: [before, [again]] }, appended] },
    },
  }
}
