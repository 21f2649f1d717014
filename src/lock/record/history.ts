import type { Document } from 'mongodb'
import { HISTORY_LIMIT, literal, type Terms } from '../terms/terms.js'

/** The events that may have changed a document's record. */
export const RECORDED_OUTCOMES = [
  'again',
  'wait',
  'ask',
  'unavailable',
  'moveTo',
  'park',
  'error',
  'released',
  'checkpoint',
  'rule',
  'deadline',
  'owner',
  'remove',
] as const
/** The event behind a change of a document's record. */
export type RecordedOutcome = (typeof RECORDED_OUTCOMES)[number]

/** One entry of `progress.history`, as it is read back. */
export interface HistoryEntry {
  /** The time of the record, or of the last wait for waits that are counted, by the server's clock. */
  at: Date
  /** The phase that it was in. */
  from: string
  /** The phase that it has been in since; the same unless it moved. */
  to: string
  /** The name of the step that ran; null when it has none. */
  step: string | null
  /** The event that ended the step, or moved the document. */
  outcome: RecordedOutcome
  /** The reason of the wait or the park, or the error's message; null: none. */
  reason: string | null
  /** The token under which it was recorded, or 'rule', 'deadline' or the person who asked for it. */
  by: string
  /** The time that the handler ran, in ms. */
  ms: number
  /** The number of identical waits in a row that this entry stands for. */
  count: number
}

/** `step` and `reason`: null when absent. */
export interface NewHistoryEntry extends Pick<HistoryEntry, 'outcome'>, Partial<Pick<HistoryEntry, 'step' | 'reason'>> {
  /** Or an expression. */
  by: string | Document
  /** Or an expression. Default: the document stays in its phase. */
  to?: string | Document
  /** Milliseconds: a number (default 0), or an expression that gives each document its own. */
  ms?: number | Document
  /** Identical ones in a row are one entry, as waits always are. */
  folds?: boolean | undefined
}

/** Outcomes that, when identical several times in a row, are one entry with a count. */
const FOLDED: ReadonlySet<RecordedOutcome> = new Set(['wait', 'unavailable'])

/**
 * `progress.history` with one more entry. The newest 20 are kept. Identical waits in a row, and steps that say so, are one with a count (and the
 * newest time and token). A history that is missing or not an array starts anew.
 */
export function historyWith(
  terms: Terms,
  { outcome, step = null, reason = null, by, to, ms = 0, folds = FOLDED.has(outcome) }: NewHistoryEntry,
): Document {
  const field = `$${terms.progress}.history`
  const added = {
    at: '$$NOW',
    from: '$phase',
    to: to === undefined ? '$phase' : textOr(to),
    step: literal(step),
    outcome: literal(outcome),
    reason: literal(reason),
    by: textOr(by),
    ms,
    count: 1,
  }
  const kept = { $cond: [{ $isArray: field }, { $slice: [field, -HISTORY_LIMIT] }, []] }
  const appended = { $slice: [{ $concatArrays: ['$$kept', [added]] }, -HISTORY_LIMIT] }
  return { $let: { vars: { kept }, in: folds ? folded(added, appended) : appended } }
}

const textOr = (value: string | Document): Document => (typeof value === 'string' ? literal(value) : value)

function folded(added: Document, appended: Document): Document {
  const isAlike = {
    $and: ['outcome', 'step', 'reason', 'from'].map((field) => ({ $eq: [`$$last.${field}`, added[field]] })),
  }
  const { at, by, ms } = added
  const count = { $add: [{ $cond: [{ $isNumber: '$$last.count' }, '$$last.count', 1] }, 1] }
  const again = { $mergeObjects: ['$$last', { at, by, ms, count }] }
  // $slice with a third argument of 0 is an error (28729), so a list of one entry has its own branch.
  const before = { $cond: [{ $lte: ['$$size', 1] }, [], { $slice: ['$$kept', { $subtract: ['$$size', 1] }] }] }
  const vars = { last: { $last: '$$kept' }, size: { $size: '$$kept' } }
  return { $let: { vars, in: { $cond: [isAlike, { $concatArrays: [before, [again]] }, appended] } } }
}
