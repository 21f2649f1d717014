import type { Document, Filter } from 'mongodb'
import { typeName } from '../documents/type-name.js'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import { inProgress, isDate, isValidYet, literal, type Terms, type TermsHold } from '../terms/terms.js'

/*
 * What `lockedAt` and `lockedBy` say of a document (the table in docs/lock-protocol.md): due, held, asleep, parked, or never due. The only
 * judgement there is of the two, once for the server (filters and expressions) and once for this process (a document that was read).
 */

/** A document's lease fields, judged at a moment of the server's clock. */
export type LeaseState =
  /** `expired`: the token of a lease that has run out. `since`: undefined where the document doesn't tell. */
  | { readonly kind: 'due'; readonly expired: string | undefined; readonly since: Date | undefined }
  /** `by`: undefined for a writer of the old kind. `renewedAt`: when its lease was taken or last renewed. */
  | { readonly kind: 'held'; readonly by: string | undefined; readonly renewedAt: Date; readonly until: Date }
  | { readonly kind: 'asleep'; readonly until: Date }
  | { readonly kind: 'parked' }
  /** No claim would ever find it. `found`: what stands in `lockedAt`. */
  | { readonly kind: 'neverDue'; readonly found: string }

/** What of the terms in force the judgement goes by. */
export type LeaseTerms = Pick<Terms, 'lockTimeoutMs' | 'legacyWriters' | 'progress'>

/** What of a document is read to judge it; with `legacyWriters` {@link leaseStateOf} needs its `progress.resumeAt` too. */
export const LEASE_FIELDS = { lockedAt: 1, lockedBy: 1, updatedAt: 1 } as const

/** The state of a document that was read; `now`: the server's time. */
export function leaseStateOf(document: Document, terms: LeaseTerms, now: Date): LeaseState {
  const found = whyNeverDue(document)
  if (found !== undefined) return { kind: 'neverDue', found }
  if (isParked(document)) return { kind: 'parked' }
  const isDated = document['lockedAt'] instanceof Date
  const lockedAt: Date = isDated ? document['lockedAt'] : TASK_LOCK_INIT_TIME
  const until = new Date(lockedAt.getTime() + terms.lockTimeoutMs)
  const token = hasToken(document) ? tokenText(document['lockedBy']) : undefined
  if (until < now) {
    // Free: due since it was unlocked. Else since its sleep or lease ended.
    const since = isDated && lockedAt > TASK_LOCK_INIT_TIME ? until : document['updatedAt']
    return { kind: 'due', expired: token, since: since instanceof Date ? since : undefined }
  }
  const isHeld = token !== undefined || (terms.legacyWriters && !saysThatItSleeps(document, terms, until))
  return isHeld ? { kind: 'held', by: token, renewedAt: lockedAt, until } : { kind: 'asleep', until }
}

/** For people: what no claim has written is told by its type. */
const tokenText = (token: unknown): string => (typeof token === 'string' ? token : typeName(token))

/** Whether somebody's token is there, its lease in force or not. */
export const hasToken = (document: Document): boolean => document['lockedBy'] != null

/** Whether it waits for a person, or for its owner's state. */
export const isParked = ({ lockedAt }: Document): boolean => lockedAt instanceof Date && lockedAt >= PARKED_AT

/** Whether it was put to sleep, and nobody has woken it; it may have come due meanwhile. */
export const wasPutToSleep = ({ lockedAt, lockedBy }: Document): boolean =>
  lockedBy == null && lockedAt instanceof Date && lockedAt > TASK_LOCK_INIT_TIME && lockedAt < PARKED_AT

const saysThatItSleeps = (document: Document, { progress }: LeaseTerms, until: Date): boolean => {
  const resumeAt: unknown = document[progress]?.resumeAt
  return resumeAt instanceof Date && resumeAt.getTime() === until.getTime()
}

/** What {@link isDue}, {@link HAS_TOKEN} and the like say, as one expression: 'due', 'held', 'asleep' or 'parked'. */
export function leaseStateExpression(terms: Terms): Document {
  const heldOrAsleep = { $cond: [{ $gt: ['$lockedBy', null] }, 'held', 'asleep'] }
  return { $cond: [{ $eq: ['$lockedAt', PARKED_AT] }, 'parked', { $cond: [isDue(terms), 'due', heldOrAsleep] }] }
}

/** Nobody's token is there. Beside writers of the old kind that isn't enough: {@link isNotHeld}. */
export const WITHOUT_TOKEN: Filter<Document> = { lockedBy: null }

/** Parked, by an equality: a bounded piece of the claim index. */
export const PARKED: Filter<Document> = { lockedAt: PARKED_AT }

/** What {@link wasPutToSleep} says. */
export const PUT_TO_SLEEP: Filter<Document> = { lockedBy: null, lockedAt: { $gt: TASK_LOCK_INIT_TIME, $lt: PARKED_AT } }

/**
 * Due: `lockedAt < now - lockTimeout`, by the server's clock. True too for a `lockedAt` that is missing, null or of any
 * type that sorts before dates; the claim mends those. At equality a document is still held.
 *
 * Never true after `validUntil`: a command that was held up judges by a lockTimeout that others may have given up.
 */
export function isDue(terms: Terms): Document {
  const { hold } = terms
  const due = { $lt: ['$lockedAt', { $subtract: [terms.protocol.now(), terms.lockTimeoutMs] }] }
  const valid = isValidYet(terms)
  if (!valid && !hold) return due
  return { $and: [due, ...(valid ? [valid] : []), ...(hold ? [restsNotOn(hold, terms)] : [])] }
}

/**
 * Of what is due by a clock that has just stepped forward: what would be due without the step, and what has been leased, or put to
 * sleep by a step of its handler, since.
 */
function restsNotOn(hold: TermsHold, { protocol, lockTimeoutMs, legacyWriters }: Terms): Document {
  const wasDue = { $lt: ['$lockedAt', { $subtract: [protocol.now(), lockTimeoutMs + hold.ms] }] }
  const asleepSince = new Date(hold.since.getTime() - (legacyWriters ? 0 : lockTimeoutMs))
  const isPause = { $in: ['$phase', literal(hold.working)] }
  const since = { $cond: [isNobodys, { $cond: [isPause, asleepSince, PARKED_AT] }, hold.since] }
  return { $or: [wasDue, { $gte: ['$lockedAt', since] }] }
}

/** No `lockedBy`, as an expression. */
export const isNobodys: Document = { $eq: [{ $ifNull: ['$lockedBy', null] }, null] }

/** What a claim requires of a document of a phase, judged by the server when its command starts. */
export const dueIn = (terms: Terms, phase: string): Document => ({
  phase,
  $expr: isDue(terms),
  ...onlyIn(terms, phase),
})

/** The condition beside the phase and the time, for a look or a claim in a phase. */
export const onlyIn = ({ only }: Terms, phase: string): Document => (only?.phases.includes(phase) ? only.where : {})

const BOUND_SLACK_MS = 1_000

/** No document with `lockedAt` at or after this is due; `now`: the server's time, or an estimate that is never behind it. */
export const dueBoundAt = (now: Date, lockTimeoutMs: number): Date =>
  new Date(now.getTime() - lockTimeoutMs + BOUND_SLACK_MS)

/** Spares an index that an array has made multikey a whole scan, beside {@link isDue}: 100,000 keys. */
export const notAfter = (bound: Date | undefined): Filter<Document> =>
  bound ? { lockedAt: { $not: { $gte: bound } } } : {}

/**
 * Nobody has a lease on it: free, expired, asleep or parked. At equality with due it is still held. With `legacyWriters` only what
 * says so sleeps (legacy-writers.ts).
 */
export function isNotHeld(terms: Terms): Filter<Document> {
  if (!terms.legacyWriters) return { $or: [WITHOUT_TOKEN, { $expr: isDue(terms) }] }
  const sleeps = { $or: [{ $eq: ['$lockedAt', PARKED_AT] }, sleepsFor(terms, terms.lockTimeoutMs)] }
  return { $expr: { $or: [isDue(terms), { $and: [isNobodys, sleeps] }] } }
}

/** Whether `lockedAt` is the encoding of a sleep until `progress.resumeAt`. */
export function sleepsFor(terms: Terms, lockTimeoutMs: number): Document {
  const resumeAt = inProgress(terms, 'resumeAt')
  return {
    $cond: [
      { $and: [isDate('$lockedAt'), isDate(resumeAt)] },
      { $eq: [resumeAt, { $add: ['$lockedAt', lockTimeoutMs] }] },
      false,
    ],
  }
}

/** The types that sort after dates, as the server and {@link typeName} call them. */
const AFTER_DATES = {
  timestamp: 'a Timestamp',
  regex: 'a regular expression',
  dbPointer: 'a DBRef',
  javascript: 'a Code',
  javascriptWithScope: 'a Code',
  maxKey: 'a MaxKey',
}

/** A document of which `lockedAt` has one of these types is {@link NEVER_DUE}, or may be. */
export const NEVER_DUE_TYPES: readonly string[] = [...Object.keys(AFTER_DATES), 'array']

/** Documents that no claim finds, by kind: each a few keys of the claim index but for arrays, which cost a walk. */
export const NEVER_DUE = {
  /** Sorts after all dates. */
  afterDates: { lockedAt: { $type: Object.keys(AFTER_DATES) } },
  /** A date after that of what is parked. */
  afterParked: { lockedAt: { $gt: PARKED_AT } },
  /** An array of late dates; one that begins early is found by any claim. */
  array: { lockedAt: { $type: 'array' } },
  /** Parked under a token: an owner wrote it under a lease. No claim, rule or unpark takes it when its holder is dead. */
  parkedLease: { lockedAt: PARKED_AT, lockedBy: { $nin: [null] } },
} as const satisfies Record<string, Filter<Document>>

/** Arrays, and dates that JavaScript can't read, may be due all the same: their state can't be told here. */
const UNREADABLE: ReadonlySet<string> = new Set([
  ...Object.values(AFTER_DATES),
  'an array',
  'a date out of the range of JavaScript',
])

function whyNeverDue(document: Document): string | undefined {
  const found = typeName(document['lockedAt'])
  if (UNREADABLE.has(found)) return found
  return isParked(document) && hasToken(document)
    ? `9999-12-31 under a lease of ${tokenText(document['lockedBy'])}`
    : undefined
}
