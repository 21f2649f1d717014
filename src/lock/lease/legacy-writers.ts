import type { Document } from 'mongodb'
import { inProgress, type Terms } from '../terms/terms.js'

/*
 * Legacy writers lease a document by setting `lockedAt` to the present and know nothing of `lockedBy`. With them
 * (`legacyWriters: true`) three more conditions hold (model, hole 11):
 *
 * 1. A document without `lockedBy` sleeps only if `progress.resumeAt` = `lockedAt` + lockTimeout, or if it is parked; any
 *    other that isn't due is leased by a legacy writer, and no rule touches it. Such a writer never makes the two equal: it
 *    takes a document only after `resumeAt`, and writes a later time.
 * 2. Each of our leases keeps in `progress.lockedAt` the value it gave `lockedAt`, and whatever is written or judged under a
 *    token requires that the two are still equal: a legacy writer that takes over an expired lease leaves our `lockedBy` in place.
 * 3. So a token that is still there doesn't prove that its lease is.
 */

/** The terms of a lifecycle that say how its leases are marked. */
export type LeaseMarking = Pick<Terms, 'legacyWriters' | 'progress'>

/** The fields that our leases add to `progress`, so that later writes can see that no writer has moved `lockedAt`. */
export const leaseMark = (terms: LeaseMarking, lockedAt: unknown): Document => (terms.legacyWriters ? { lockedAt } : {})

/** The condition of a write or a read under a token, besides the token. */
export const leaseUnmoved = (terms: LeaseMarking): Document =>
  terms.legacyWriters ? { $expr: { $eq: ['$lockedAt', inProgress(terms, 'lockedAt')] } } : {}

/** The same for a document that was read. */
export function isLeaseUnmoved(terms: LeaseMarking, document: Document): boolean {
  if (!terms.legacyWriters) return true
  const [lockedAt, mark] = [document['lockedAt'], document[terms.progress]?.lockedAt]
  return lockedAt instanceof Date && mark instanceof Date && lockedAt.getTime() === mark.getTime()
}
