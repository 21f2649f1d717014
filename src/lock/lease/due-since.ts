import type { Document } from 'mongodb'
import { isValid } from '../documents/type-name.js'
import { inProgress, isDate, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'
import { type LeaseTerms, leaseStateOf } from './lease-state.js'

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

/** The same as an expression, for a document that is due; null: it is undated. */
export function dueSinceExpression(terms: Terms, now: Date): Document {
  const isSleep = { $and: [isDate('$lockedAt'), { $gt: ['$lockedAt', TASK_LOCK_INIT_TIME] }] }
  const isPast = (date: unknown) => ({ $and: [isDate(date as string), { $lte: [date, now] }] })
  const ofId = { $cond: [{ $eq: [{ $type: '$_id' }, 'objectId'] }, { $toDate: '$_id' }, null] }
  const dates: unknown[] = ['$updatedAt', inProgress(terms, 'at'), inProgress(terms, 'since'), '$createdAt', ofId]
  const branches = dates.map((then) => ({ case: isPast(then), then }))
  const written = { $switch: { branches, default: null } }
  return { $cond: [isSleep, { $add: ['$lockedAt', terms.lockTimeoutMs] }, written] }
}
