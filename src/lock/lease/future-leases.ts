import type { Collection, Document, Filter } from 'mongodb'
import { AS_IT_STANDS, onClaimIndex, onIndex } from '../documents/read.js'
import { withIds } from '../documents/values.js'
import { updateAround } from '../documents/write.js'
import { inProgress, PARKED_AT, type Terms } from '../terms/terms.js'
import { leaseUnmoved } from './lease.js'
import { sleepsFor, WITHOUT_TOKEN } from './lease-state.js'
import { STEP_SLACK_MS } from './server-clock.js'

const BATCH = 1_000

/** True if a lease is further ahead of the server's clock than members of a replica set may differ. */
export const isFromTheFuture: Document = { $gt: ['$lockedAt', { $add: ['$$NOW', STEP_SLACK_MS] }] }

/**
 * Matches leases from before the server's clock stepped back. By that clock they last longer by the whole step, even those of
 * replicas that are gone.
 * @param until no such lease is later, so that documents in a long sleep needn't be read
 */
export const futureLeases = (terms: Terms, phases: readonly string[], until: Date = PARKED_AT): Filter<Document> => ({
  phase: { $in: [...phases] },
  lockedAt: { $gt: new Date(0), $lt: until },
  lockedBy: { $type: 'string' },
  $and: [{ $expr: isFromTheFuture }, leaseUnmoved(terms)],
})

/**
 * Restarts such leases now. That is what a renewal writes, so a live holder loses nothing: the lease it believes in ends no later,
 * and its next renewal comes before that. A holder that is gone sends no renewal, and its documents are due after lockTimeout, as
 * after any crash. The caller needn't know which holders are gone.
 * @returns the number of leases that were restarted
 */
export async function redateLeases(
  collection: Collection,
  terms: Terms,
  phases: readonly string[],
  until?: Date,
): Promise<number> {
  const filter = futureLeases(terms, phases, until)
  const begunAnew = {
    $set: { lockedAt: '$$NOW', ...(terms.legacyWriters && { [`${terms.progress}.lockedAt`]: '$$NOW' }) },
  }
  return redated(collection, filter, begunAnew)
}

/** Finds documents by an index, and writes those that still match. @returns the number of documents written */
export async function redated(
  collection: Collection,
  filter: Filter<Document>,
  update: Document,
  index?: Document,
): Promise<number> {
  const find = (hint: Document) => collection.find(filter, { projection: { _id: 1 }, hint, ...AS_IT_STANDS }).toArray()
  const found = await (index ? onIndex(collection, index, find) : onClaimIndex(collection, find))
  const stillSo = (some: readonly unknown[]) => ({ ...withIds(some), $and: [filter] })
  const ids = found.map((document) => document['_id'] as unknown)
  let count = 0
  for (let from = 0; from < ids.length; from += BATCH) {
    // Documents that refuse the write are skipped: they couldn't be claimed either.
    const { matched } = await updateAround(collection, ids.slice(from, from + BATCH), stillSo, [update])
    count += matched
  }
  return count
}

/**
 * Restarts pauses that began in the future, before the server's clock stepped back: waits, pauses after errors, and any other sleep
 * that a step has begun. By that clock they last longer by the whole step. None gets longer, so it may be repeated, by any number
 * of replicas. A question keeps its time.
 * @returns the number of pauses that were shortened
 */
export async function redatePauses(collection: Collection, terms: Terms, phases: readonly string[]): Promise<number> {
  const { progress, lockTimeoutMs } = terms
  const times = inProgress(terms, 'history.at')
  const begunAt = { $cond: [{ $isArray: times }, { $arrayElemAt: [times, -1] }, null] }
  const isAhead = {
    $and: [{ $eq: [{ $type: begunAt }, 'date'] }, { $gt: [begunAt, { $add: ['$$NOW', STEP_SLACK_MS] }] }],
  }
  const resumeAt = inProgress(terms, 'resumeAt')
  const wake = { $min: [resumeAt, { $add: ['$$NOW', { $subtract: [resumeAt, begunAt] }] }] }
  const isLonger = { $lt: [wake, resumeAt] }
  const filter = {
    phase: { $in: [...phases] },
    lockedAt: { $gt: new Date(0), $lt: PARKED_AT },
    ...WITHOUT_TOKEN,
    [`${progress}.question`]: { $exists: false },
    $expr: { $and: [sleepsFor(terms, lockTimeoutMs), isAhead, { $cond: [isAhead, isLonger, false] }] },
  } as Filter<Document>
  const update = {
    $set: { lockedAt: { $subtract: [wake, lockTimeoutMs] }, [`${progress}.resumeAt`]: wake },
  }
  return redated(collection, filter, update)
}
