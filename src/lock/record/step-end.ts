import type { Document } from 'mongodb'
import type { Lease } from '../lease/lease.js'
import {
  type BackOffRule,
  DEFAULT_BACK_OFF,
  HISTORY_LIMIT,
  inProgress,
  isDate,
  isPastDate,
  LEAST_PAUSE_MS,
  literal,
  type Terms,
} from '../terms/terms.js'
import type { AskedQuestion, ChildList, StoredAwaits } from './progress.js'

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

/** The recorded part of an error: bounded, so that a 10 MB message never costs a document. */
export interface RecordedError {
  /** The error's class: `TypeError`; `Error` where it has none. */
  readonly name: string
  /** At most 2,000 characters. */
  readonly message: string
  /** The code that libraries and systems set: `ECONNREFUSED`. */
  readonly code?: string | number | undefined
  /** Without the frames of Phaselock itself. */
  readonly stack?: string | undefined
  /** Its `cause`, the cause's own, and so on; for an AggregateError also its `errors`. */
  readonly causes?: readonly Pick<RecordedError, 'name' | 'message' | 'code'>[] | undefined
  /** A bug of the program: the number of the document's steps in a row that have ended with one. */
  readonly bugs?: number | undefined
  /** What it has in common with other errors of its kind, as 12 hex digits (docs/flow.md); absent: recorded by an older version. */
  readonly cause?: string | undefined
}

/**
 * The protocol's way to end a step: one kind for each row of the table in docs/lock-protocol.md. Two ends of the same kind and content may be
 * written together; fields that differ from document to document are in {@link StepEnd}.
 */
export type EndKind = {
  /** The name of the step that ran; null when it has none. */
  readonly step: string | null
} & (
  | {
      readonly kind: 'again'
      readonly nextStep: string | null
      readonly keepsLease: boolean
      /** The one before was like it: one entry of the history stands for both. */
      readonly folds?: true | undefined
      /** Its lease doesn't go on, and it sleeps: too many steps in a row. */
      readonly forMs?: number | undefined
    }
  | {
      readonly kind: 'wait' | 'unavailable'
      readonly reason: string
      /** The kind of thing that it waits for. */
      readonly on?: string | undefined
      readonly forMs: number | null
      /** The event that ends the sleep before its time. */
      readonly awaits?: StoredAwaits | undefined
    }
  | {
      readonly kind: 'ask'
      readonly question: AskedQuestion
      /** Until its time is over; null: it has no end. */
      readonly forMs: number | null
      readonly times: number
      /** It asks the same as before, and there is no answer yet: that question goes on, with its deadline. */
      readonly keeps?: true | undefined
    }
  | {
      readonly kind: 'moveTo'
      readonly to: string
      /** The milliseconds that it sleeps there; undefined: it is due immediately. */
      readonly forMs?: number | undefined
      readonly by: 'handler' | 'deadline'
      readonly reason: string | null
      /** To a phase that it has come from: its steps in a row are stored. */
      readonly inCircles?: true | undefined
      /** A deadline's compensation: written only while the owner still wants `ifState`. */
      readonly setState?: { readonly ifState: unknown; readonly state: string } | undefined
    }
  | {
      readonly kind: 'park'
      readonly reason: string
      /** Null: a handler's decision. */
      readonly error: RecordedError | null
      /** The cause of such a decision, by its reason. */
      readonly cause?: string | undefined
      /** For the last of too many errors in a row. */
      readonly usesAttempt?: true | undefined
    }
  | { readonly kind: 'error'; readonly error: RecordedError }
  | { readonly kind: 'released' | 'sleepUntilDeadline' }
  | {
      readonly kind: 'checkpoint'
      /** All lists of children that it has with this write. */
      readonly children?: readonly ChildList[] | undefined
      /** The fence from which children are its own. */
      readonly childrenFrom?: number | undefined
      readonly reason?: string | undefined
    }
  /** Parked without a record of the reason: for a document that takes no other write any more (its size, a `progress` of its owner's). */
  | { readonly kind: 'quarantine'; readonly reason: string }
)

/** One document's end of a step. */
export interface StepEnd {
  readonly lease: Lease
  readonly end: EndKind
  /** The milliseconds that the handler ran. */
  readonly ms: number
  /** The owner's fields to store with it; `undefined` removes a field. */
  readonly set?: Readonly<Record<string, unknown>> | undefined
  /** The number of steps in a row including this one; stored where its lease ends and others follow. */
  readonly steps?: number | undefined
  /** Milliseconds to sleep after an error, where each document has its own pause. */
  readonly pauseMs?: number | undefined
  /** The latest end of a sleep in this phase (its deadline, server time); null: no deadline. */
  readonly wakeBy: Date | null
  /** Fields of `progress` that the document has and that this end removes. */
  readonly stale: readonly string[]
  /** Set when it is recorded: the document's queued inserts were applied with it. */
  readonly appliesPendingInsert?: true | undefined
}

/** The names of fields that a `set` removes. */
export const removedFields = (set: Readonly<Record<string, unknown>>): string[] =>
  Object.keys(set).filter((name) => set[name] === undefined)

/**
 * The outcome of a write under a token (`appliesPendingInsert`: one that applied its document's queued inserts, and let go of it):
 * - `recorded`;
 * - `lost`: the lease was taken, nothing was written;
 * - `movedOn`: unknown, but the document has gone on and there is nothing left to do;
 * - `rejected`: the server refuses it because of the document itself (its validator, its size, a type); the lease still stands;
 * - `givenUp`: it failed again and again, through no fault of the document, while the lease could be renewed. Unknown, because it may still
 *   arrive: the lease runs out, and the step is repeated.
 */
export type Verdict =
  | { readonly kind: 'recorded' | 'lost' | 'movedOn'; readonly appliesPendingInsert?: true | undefined }
  | { readonly kind: 'rejected'; readonly error: Error; readonly appliesPendingInsert?: true | undefined }
  | { readonly kind: 'givenUp'; readonly error: unknown }

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
