import type { Document, Filter } from 'mongodb'
import { isValid, typeName } from '../documents/values.js'
import {
  inProgress,
  isDate,
  isValidYet,
  literal,
  PARKED_AT,
  TASK_LOCK_INIT_TIME,
  type Terms,
  type TermsHold,
} from '../terms/terms.js'

/*
 * The meaning of `lockedAt` and `lockedBy` in a document (the table in docs/lock-protocol.md): due, held, asleep, parked, or never
 * due. The two are judged only here, once for the server (filters and expressions) and once for this process (a document that was
 * read).
 */

/** A document's lease fields, judged at a moment of the server's clock. */
export type LeaseState =
  /** `expired`: the token of a lease that has run out. `since`: undefined if the document doesn't say. */
  | { readonly kind: 'due'; readonly expired: string | undefined; readonly since: Date | undefined }
  /** `by`: undefined for a legacy writer. `renewedAt`: the time when the lease was taken or last renewed. */
  | { readonly kind: 'held'; readonly by: string | undefined; readonly renewedAt: Date; readonly until: Date }
  | { readonly kind: 'asleep'; readonly until: Date }
  | { readonly kind: 'parked' }
  /** No claim would ever find it. `found`: the type in `lockedAt`. */
  | { readonly kind: 'neverDue'; readonly found: string }

/** The part of the terms in force that the judgement needs. */
export type LeaseTerms = Pick<Terms, 'lockTimeoutMs' | 'legacyWriters' | 'progress'>

/** The fields that are read to judge a document; with `legacyWriters`, {@link leaseStateOf} also needs `progress.resumeAt`. */
export const LEASE_FIELDS = { lockedAt: 1, lockedBy: 1, updatedAt: 1 } as const

/** The lease state of a document that was read; `now`: the server's time. */
export function leaseStateOf(document: Document, terms: LeaseTerms, now: Date): LeaseState {
  const found = whyNeverDue(document)
  if (found !== undefined) return { kind: 'neverDue', found }
  if (isParked(document)) return { kind: 'parked' }
  const isDated = document['lockedAt'] instanceof Date
  const lockedAt: Date = isDated ? document['lockedAt'] : TASK_LOCK_INIT_TIME
  const until = new Date(lockedAt.getTime() + terms.lockTimeoutMs)
  const token = hasToken(document) ? tokenText(document['lockedBy']) : undefined
  if (until < now) {
    // A free document is due since it was unlocked, any other since its sleep or lease ended.
    const since = isDated && lockedAt > TASK_LOCK_INIT_TIME ? until : document['updatedAt']
    return { kind: 'due', expired: token, since: since instanceof Date ? since : undefined }
  }
  const isHeld = token !== undefined || (terms.legacyWriters && !saysThatItSleeps(document, terms, until))
  return isHeld ? { kind: 'held', by: token, renewedAt: lockedAt, until } : { kind: 'asleep', until }
}

/** A token for people: a value that no claim has written is shown by its type. */
const tokenText = (token: unknown): string => (typeof token === 'string' ? token : typeName(token))

/** The token that it carries, even if that lease is no longer in force; null: no token, or nothing that a claim has written. */
export const tokenOf = ({ lockedBy }: Document): string | null => (typeof lockedBy === 'string' ? lockedBy : null)

/** True if it carries a token, even if that lease is no longer in force. */
export const hasToken = (document: Document): boolean => document['lockedBy'] != null

/** True if it waits for a person, or for a state from its owner. */
export const isParked = ({ lockedAt }: Document): boolean => lockedAt instanceof Date && lockedAt >= PARKED_AT

/** True if it was put to sleep, and no writer has woken it; it may have come due since. */
export const wasPutToSleep = ({ lockedAt, lockedBy }: Document): boolean =>
  lockedBy == null && lockedAt instanceof Date && lockedAt > TASK_LOCK_INIT_TIME && lockedAt < PARKED_AT

const saysThatItSleeps = (document: Document, { progress }: LeaseTerms, until: Date): boolean => {
  const resumeAt: unknown = document[progress]?.resumeAt
  return resumeAt instanceof Date && resumeAt.getTime() === until.getTime()
}

/** The lease state as one expression, with the results of {@link isDue}, {@link hasToken} and the like: 'due', 'held', 'asleep' or 'parked'. */
export function leaseStateExpression(terms: Terms): Document {
  const isAsleep = terms.legacyWriters ? { $and: [isUnleased, sleepsFor(terms, terms.lockTimeoutMs)] } : isUnleased
  const heldOrAsleep = { $cond: [isAsleep, 'asleep', 'held'] }
  return { $cond: [{ $eq: ['$lockedAt', PARKED_AT] }, 'parked', { $cond: [isDue(terms), 'due', heldOrAsleep] }] }
}

/** Matches documents that carry no token. With legacy writers that isn't enough: {@link isNotHeld}. */
export const WITHOUT_TOKEN: Filter<Document> = { lockedBy: null }

/** Parked, as an equality: a bounded piece of the claim index. */
export const PARKED: Filter<Document> = { lockedAt: PARKED_AT }

/** The same as an expression. */
export const IS_PARKED: Document = { $and: [isDate('$lockedAt'), { $gte: ['$lockedAt', PARKED_AT] }] }

/** Free, leased, asleep or due. */
export const NOT_PARKED: Filter<Document> = { lockedAt: { $not: { $gte: PARKED_AT } } }

/** {@link wasPutToSleep} as a filter. */
export const PUT_TO_SLEEP: Filter<Document> = { lockedBy: null, lockedAt: { $gt: TASK_LOCK_INIT_TIME, $lt: PARKED_AT } }

/**
 * Due: `lockedAt < now - lockTimeout`, by the server's clock. Also true for a `lockedAt` that is missing, null or of any
 * type that sorts before dates; the claim mends those. At equality a document is still held.
 *
 * Never true after `validUntil`: a delayed command would judge by a lockTimeout that others may have given up.
 */
export function isDue(terms: Terms): Document {
  const { hold } = terms
  const due = { $lt: ['$lockedAt', { $subtract: ['$$NOW', terms.lockTimeoutMs] }] }
  const valid = isValidYet(terms)
  if (!valid && !hold) return due
  return { $and: [due, ...(valid ? [valid] : []), ...(hold ? [restsNotOn(hold, terms)] : [])] }
}

/**
 * True for a document that may count as due after the server's clock has stepped forward: it would be due without the step, or it has since been
 * leased, or put to sleep by a handler's step.
 */
function restsNotOn(hold: TermsHold, { lockTimeoutMs, legacyWriters }: Terms): Document {
  const wasDue = { $lt: ['$lockedAt', { $subtract: ['$$NOW', lockTimeoutMs + hold.ms] }] }
  const asleepSince = new Date(hold.since.getTime() - (legacyWriters ? 0 : lockTimeoutMs))
  const isPause = { $in: ['$phase', literal(hold.working)] }
  const since = { $cond: [isUnleased, { $cond: [isPause, asleepSince, PARKED_AT] }, hold.since] }
  return { $or: [wasDue, { $gte: ['$lockedAt', since] }] }
}

/** No `lockedBy`, as an expression. */
export const isUnleased: Document = { $eq: [{ $ifNull: ['$lockedBy', null] }, null] }

/** The conditions of a claim on a document in a phase, judged by the server when the command starts. */
export const dueIn = (terms: Terms, phase: string): Document => ({
  phase,
  $expr: isDue(terms),
  ...onlyIn(terms, phase),
})

/** The condition besides the phase and the time, for a look or a claim in a phase. */
export const onlyIn = ({ only }: Terms, phase: string): Document => (only?.phases.includes(phase) ? only.where : {})

const BOUND_SLACK_MS = 1_000

/** No document with `lockedAt` at or after this is due; `now`: the server's time, or an estimate that is never behind it. */
export const dueBoundAt = (now: Date, lockTimeoutMs: number): Date =>
  new Date(now.getTime() - lockTimeoutMs + BOUND_SLACK_MS)

/** Used with {@link isDue}, it saves a whole scan (100,000 keys) of an index that an array has made multikey. */
export const notAfter = (bound: Date | undefined): Filter<Document> =>
  bound ? { lockedAt: { $not: { $gte: bound } } } : {}

/**
 * Matches documents that no replica has a lease on: free, expired, asleep or parked. At the very moment of coming due a document is
 * still held. With `legacyWriters` it sleeps only if it says so.
 */
export function isNotHeld(terms: Terms): Filter<Document> {
  if (!terms.legacyWriters) return { $or: [WITHOUT_TOKEN, { $expr: isDue(terms) }] }
  const sleeps = { $or: [{ $eq: ['$lockedAt', PARKED_AT] }, sleepsFor(terms, terms.lockTimeoutMs)] }
  return { $expr: { $or: [isDue(terms), { $and: [isUnleased, sleeps] }] } }
}

/** True if `lockedAt` is the encoding of a sleep until `progress.resumeAt`. */
export function sleepsFor(terms: Terms, lockTimeoutMs: number): Document {
  const resumeAt = inProgress(terms, 'resumeAt')
  const areDates = { $and: [isDate('$lockedAt'), isDate(resumeAt)] }
  return { $cond: [areDates, { $eq: [resumeAt, { $add: ['$lockedAt', lockTimeoutMs] }] }, false] }
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

/** A document whose `lockedAt` has one of these types is {@link NEVER_DUE}, or may be. */
export const NEVER_DUE_TYPES: readonly string[] = [...Object.keys(AFTER_DATES), 'array']

/** Documents that no claim finds, by kind: each reads a few keys of the claim index, but arrays cost a walk. */
export const NEVER_DUE = {
  /** Sorts after all dates. */
  afterDates: { lockedAt: { $type: Object.keys(AFTER_DATES) } },
  /** A date later than that of parked documents. */
  afterParked: { lockedAt: { $gt: PARKED_AT } },
  /** An array of late dates; one that begins early is found by any claim. */
  array: { lockedAt: { $type: 'array' } },
  /** Parked under a token: its owner wrote that under a lease. No claim, rule or unpark takes it once its holder is dead. */
  parkedLease: { lockedAt: PARKED_AT, lockedBy: { $nin: [null] } },
} as const satisfies Record<string, Filter<Document>>

/** Arrays, and dates that JavaScript can't read, may still be due: their state can't be judged here. */
const UNREADABLE: ReadonlySet<string> = new Set([
  ...Object.values(AFTER_DATES),
  'an array',
  'a date outside the range of JavaScript',
])

function whyNeverDue(document: Document): string | undefined {
  const found = typeName(document['lockedAt'])
  if (UNREADABLE.has(found)) return found
  return isParked(document) && hasToken(document)
    ? `9999-12-31 under a lease of ${tokenText(document['lockedBy'])}`
    : undefined
}

/*
 * The time at which a due document came due. For one that slept or was held: the end of that. For one that is free: its last write, by the first
 * of the fields below with a date that isn't in the future. A writer in any language may leave all of them out: such a document is *undated*
 * until a replica leaves it due and writes its `createdAt`, or claims it.
 */

/** The fields that are read to judge it, besides `_id`. */
export const dueSinceFields = ({ progress }: Pick<Terms, 'progress'>): Document => ({
  ...{ lockedAt: 1, lockedBy: 1, updatedAt: 1, createdAt: 1 },
  ...{ [`${progress}.at`]: 1, [`${progress}.since`]: 1, [`${progress}.resumeAt`]: 1 },
})

/** The time at which a document came due. Undefined: it is undated, or it isn't due. `now`: the server's time. */
export function dueSince(document: Document, terms: LeaseTerms, now: Date): Date | undefined {
  const state = leaseStateOf(document, terms, now)
  if (state.kind !== 'due') return undefined
  const { updatedAt, createdAt, _id } = document
  const { at, since } = Object(document[terms.progress]) as Document
  const ofId = _id?._bsontype === 'ObjectId' ? _id.getTimestamp() : undefined
  return [state.since, updatedAt, at, since, createdAt, ofId].find(
    (date): date is Date => date instanceof Date && isValid(date) && date <= now,
  )
}
