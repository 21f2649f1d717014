import type { Document } from 'mongodb'
import { inProgress, type Terms } from '../terms/terms.js'

/*
 * Beside writers of the old kind, which lease a document by setting `lockedAt` to the present and know nothing of `lockedBy`
 * (`legacyWriters: true`), three more conditions hold (model, hole 11):
 *
 * 1. A document without `lockedBy` sleeps only if `progress.resumeAt` = `lockedAt` + lockTimeout, or if it is parked; every
 *    other one that isn't due is leased by such a writer, and no rule touches it. Such a writer never makes the two equal: it
 *    takes a document only after `resumeAt`, and writes a later time.
 * 2. Each of our leases keeps in `progress.lockedAt` what it has set `lockedAt` to, and whatever is written or judged
 *    under a token requires that the two are still equal: such a writer that took over an expired lease leaves our `lockedBy` there.
 * 3. So a token that is still there doesn't mean that the lease is.
 */

/** What of a lifecycle says how its leases are marked. */
export type LeaseMarking = Pick<Terms, 'legacyWriters' | 'progress'>

/** What a lease of ours adds to `progress`, so that its later writes can tell that nobody has moved `lockedAt`. */
export const leaseMark = (terms: LeaseMarking, lockedAt: unknown): Document => (terms.legacyWriters ? { lockedAt } : {})

/** What a write or a read under a token requires beside the token. */
export const leaseUnmoved = (terms: LeaseMarking): Document =>
  terms.legacyWriters ? { $expr: { $eq: ['$lockedAt', inProgress(terms, 'lockedAt')] } } : {}

/** The same, told by a document that was read. */
export function isLeaseUnmoved(terms: LeaseMarking, document: Document): boolean {
  if (!terms.legacyWriters) return true
  const [lockedAt, mark] = [document['lockedAt'], document[terms.progress]?.lockedAt]
  return lockedAt instanceof Date && mark instanceof Date && lockedAt.getTime() === mark.getTime()
}
