import type { Document } from 'mongodb'
import { IS_PARKED, isUnleased } from '../lease/lease-state.js'
import {
  inProgress,
  isDate,
  literal,
  progressAcrossPhases,
  TASK_LOCK_INIT_TIME,
  type Terms,
  without,
} from '../terms/terms.js'
import { historyWith } from './step-end.js'

/*
 * Inserts that are queued for a held document, in `progress.next`. Only its holder ends a step, so they only add to it, and the write that lets
 * go of the document applies it.
 *
 * Invariants:
 * 1. It goes with the write that puts its values into the document and makes that due, and with no other.
 * 2. No step begins on a document that was seen to have one: a claim gives such a document back, which applies it.
 * 3. No write but a checkpoint keeps a lease past it, and none but a quarantine lets go of a document that has it.
 */

/** The queued inserts of a document, as they are stored. */
export interface PendingInsert {
  /** The owner's fields, of all inserts: the newest of each. */
  readonly set?: Readonly<Record<string, unknown>>
  /** The phase where it begins again should it come to rest or be parked; absent: it doesn't. */
  readonly begin?: string
  /** The `lockedAt` that the newest insert gave; absent: it is due immediately. */
  readonly lockedAt?: Date
  /** The last inserter, and the time by the server's clock. */
  readonly by?: string
  readonly at?: Date
}

const objectAt = (path: string): Document => ({ $cond: [{ $eq: [{ $type: path }, 'object'] }, path, {}] })

/** The fields of a document's queued inserts, as an expression: under those of a newer insert, which wins. */
export const pendingFields = (terms: Terms): Document => objectAt(inProgress(terms, 'next.set'))

/** The state in a document's queued insert: one that is set later counts. */
export const pendingState = ({ progress }: Pick<Terms, 'progress'>): string => `${progress}.next.set.state`

/** `progress` without queued inserts, nor the sleep that they end. */
export const withoutPendingInsert = (progress: unknown): Document => without(progress, ['next', 'resumeAt'])

/** `progress` with one insert more. */
export function addPendingInsert(
  terms: Terms,
  insert: {
    readonly set: Document
    readonly begin?: string | undefined
    readonly lockedAt?: unknown
    /** Instead: due at this time, or earlier if it would be anyway. */
    readonly later?: Document | 0 | undefined
    readonly by: string
  },
): Document {
  const begin =
    insert.begin === undefined ? { $ifNull: [inProgress(terms, 'next.begin'), '$$REMOVE'] } : literal(insert.begin)
  const known = inProgress(terms, 'next.lockedAt')
  const isPendingAtOnce = {
    $and: [{ $eq: [{ $type: inProgress(terms, 'next') }, 'object'] }, { $not: [isDate(known)] }],
  }
  const later = insert.later && { $cond: [isPendingAtOnce, '$$REMOVE', { $min: [known, insert.later] }] }
  const next = {
    set: { $mergeObjects: [pendingFields(terms), insert.set] },
    begin,
    lockedAt: later ?? insert.lockedAt ?? '$$REMOVE',
    by: literal(insert.by),
    at: '$$NOW',
  }
  return { $mergeObjects: [`$${terms.progress}`, { next }] }
}

/** The fields with which a document begins in a phase anew, as one that is inserted does. */
export function begunIn(
  terms: Terms,
  { phase, lockedAt, by }: { readonly phase: Document; readonly lockedAt: unknown; readonly by: string | Document },
): Document {
  const now = '$$NOW'
  const history = historyWith(terms, { outcome: 'owner', reason: 'inserted again', by, to: phase })
  const begun = { since: now, attempts: 0, claims: 0, history }
  const progress = { $mergeObjects: [progressAcrossPhases(terms), begun] }
  return { phase, lockedAt, updatedAt: now, [terms.progress]: withoutPendingInsert(progress) }
}

/**
 * The stage that applies queued inserts, after the stages that let go of the document. Their values are in it, and it is due if it has work to
 * do; if it rests or is parked it begins again, where an insert asked for that. Without queued inserts it changes nothing.
 */
export function applyPendingInsert(terms: Terms): Document {
  const next = (field: string) => inProgress(terms, `next.${field}`)
  const rests = terms.working
    ? { $or: [IS_PARKED, { $not: [{ $in: ['$phase', literal(terms.working)] }] }] }
    : IS_PARKED
  const begins = { $and: [rests, { $eq: [{ $type: next('begin') }, 'string'] }] }
  const lockedAt = { $cond: [isDate(next('lockedAt')), next('lockedAt'), TASK_LOCK_INIT_TIME] }
  const by = { $ifNull: [next('by'), 'owner'] }
  const begun = begunIn(terms, { phase: { $toString: next('begin') }, lockedAt, by })
  const stays = { [terms.progress]: without(`$${terms.progress}`, ['next']) }
  const awake = { lockedAt, [terms.progress]: withoutPendingInsert(`$${terms.progress}`) }
  const changed = { $cond: [begins, begun, { $cond: [rests, stays, awake] }] }
  const applied = { $mergeObjects: ['$$ROOT', pendingFields(terms), changed] }
  const isThere = { $ne: [{ $type: inProgress(terms, 'next') }, 'missing'] }
  const isOurs = { $eq: [{ $type: `$${terms.progress}` }, 'object'] }
  return { $replaceWith: { $cond: [{ $and: [isOurs, isThere] }, applied, '$$ROOT'] } }
}

/**
 * The same for an update that takes a document from a holder that has died, before the stage that removes `lockedBy`. A document without a holder
 * keeps its queued inserts: it was quarantined because of them.
 */
export const applyPendingInsertOfHolder = (terms: Terms): Document => ({
  $replaceWith: { $cond: [isUnleased, '$$ROOT', applyPendingInsert(terms)['$replaceWith']] },
})
