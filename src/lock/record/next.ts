import type { Document, Filter } from 'mongodb'
import { isNobodys } from '../lease/lease-state.js'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import { inProgress, isDate, literal, progressAcrossPhases, type Terms, without } from '../terms/terms.js'
import { historyWith } from './history.js'

/*
 * What inserts leave for a document that is held, in `progress.next`. Nobody but its holder ends a step, so they only add to it, and whoever
 * lets go of the document applies it.
 *
 * Invariants:
 * 1. It goes with the write that puts its values into the document and makes that due, and with no other.
 * 2. No step begins on a document in which it was seen: a claim gives such a document back, which applies it.
 * 3. No write but a checkpoint keeps a lease past it, and none but putting aside lets go of a document that has it.
 */

/** What is left for a document, as it is stored. */
export interface StoredNext {
  /** The owner's fields, of all inserts: the newest of each. */
  readonly set?: Readonly<Record<string, unknown>>
  /** The phase in which it begins again should it come to rest or be parked; absent: it doesn't. */
  readonly begin?: string
  /** The `lockedAt` that the newest insert gave; absent: it is due at once. */
  readonly lockedAt?: Date
  /** Who inserted it last, and when by the server's clock. */
  readonly by?: string
  readonly at?: Date
}

const objectAt = (path: string): Document => ({ $cond: [{ $eq: [{ $type: path }, 'object'] }, path, {}] })

/** Nothing is left for it: what the end of a step requires, which otherwise is sent again with {@link applyNext}. */
export const nothingNext = ({ progress }: Terms): Filter<Document> => ({ [`${progress}.next`]: { $exists: false } })

/** Whether something is left for a document that was read. */
export const hasNext = (progress: unknown): boolean => Object(progress)['next'] !== undefined

/** The fields that are left for a document, as an expression: under those of a newer insert, which wins. */
export const nextFields = (terms: Terms): Document => objectAt(inProgress(terms, 'next.set'))

/** The state in an insert that was left for a document: one that is set later counts. */
export const stateInNext = ({ progress }: Pick<Terms, 'progress'>): string => `${progress}.next.set.state`

/** `progress` without what was left, nor the sleep that it ends. */
export const withoutNext = (progress: unknown): Document => without(progress, ['next', 'resumeAt'])

/** `progress` with one insert more. */
export function leftFor(
  terms: Terms,
  insert: {
    readonly set: Document
    readonly begin?: string | undefined
    readonly lockedAt?: unknown
    /** Instead: so late, or when it would be due anyway. */
    readonly later?: Document | 0 | undefined
    readonly by: string
  },
): Document {
  const begin =
    insert.begin === undefined ? { $ifNull: [inProgress(terms, 'next.begin'), '$$REMOVE'] } : literal(insert.begin)
  const known = inProgress(terms, 'next.lockedAt')
  const isLeftAtOnce = { $and: [{ $eq: [{ $type: inProgress(terms, 'next') }, 'object'] }, { $not: [isDate(known)] }] }
  const later = insert.later && { $cond: [isLeftAtOnce, '$$REMOVE', { $min: [known, insert.later] }] }
  const next = {
    set: { $mergeObjects: [nextFields(terms), insert.set] },
    begin,
    lockedAt: later ?? insert.lockedAt ?? '$$REMOVE',
    by: literal(insert.by),
    at: terms.protocol.now(),
  }
  return { $mergeObjects: [`$${terms.progress}`, { next }] }
}

/** The fields with which a document begins in a phase anew, as one that is inserted does. */
export function begunIn(
  terms: Terms,
  { phase, lockedAt, by }: { readonly phase: Document; readonly lockedAt: unknown; readonly by: string | Document },
): Document {
  const now = terms.protocol.now()
  const history = historyWith(terms, { outcome: 'owner', reason: 'inserted again', by, to: phase })
  const begun = { since: now, attempts: 0, claims: 0, history }
  const progress = { $mergeObjects: [progressAcrossPhases(terms), begun] }
  return { phase, lockedAt, updatedAt: now, [terms.progress]: withoutNext(progress) }
}

/**
 * What was left for a document, after the stages that let go of it: its values are there, and it is due if it has work to do; if it rests or is
 * parked it begins again, where that was asked for. Changes nothing where nothing was left.
 */
export function applyNext(terms: Terms): Document {
  const next = (field: string) => inProgress(terms, `next.${field}`)
  const isParked = { $and: [isDate('$lockedAt'), { $gte: ['$lockedAt', PARKED_AT] }] }
  const rests = terms.working ? { $or: [isParked, { $not: [{ $in: ['$phase', literal(terms.working)] }] }] } : isParked
  const begins = { $and: [rests, { $eq: [{ $type: next('begin') }, 'string'] }] }
  const lockedAt = { $cond: [isDate(next('lockedAt')), next('lockedAt'), TASK_LOCK_INIT_TIME] }
  const by = { $ifNull: [next('by'), 'owner'] }
  const begun = begunIn(terms, { phase: { $toString: next('begin') }, lockedAt, by })
  const stays = { [terms.progress]: without(`$${terms.progress}`, ['next']) }
  const awake = { lockedAt, [terms.progress]: withoutNext(`$${terms.progress}`) }
  const changed = { $cond: [begins, begun, { $cond: [rests, stays, awake] }] }
  const applied = { $mergeObjects: ['$$ROOT', nextFields(terms), changed] }
  const isThere = { $ne: [{ $type: inProgress(terms, 'next') }, 'missing'] }
  const isOurs = { $eq: [{ $type: `$${terms.progress}` }, 'object'] }
  return { $replaceWith: { $cond: [{ $and: [isOurs, isThere] }, applied, '$$ROOT'] } }
}

/**
 * The same for an update that takes a document from a holder who has died, before the stage that removes `lockedBy`. What nobody has keeps
 * what was left for it: it was put aside because of that.
 */
export const applyNextOfHolder = (terms: Terms): Document => ({
  $replaceWith: { $cond: [isNobodys, '$$ROOT', applyNext(terms)['$replaceWith']] },
})
