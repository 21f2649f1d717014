import type { Collection, Document, Filter } from 'mongodb'
import { updateAround } from '../documents/write-around.js'
import { onClaimIndex } from '../indexes/claim-index.js'
import { STEP_SLACK_MS } from '../terms/clock-steps.js'
import { PARKED_AT } from '../terms/constants.js'
import type { Terms } from '../terms/terms.js'
import { leaseUnmoved } from './legacy-writers.js'

const BATCH = 1_000

/** By how much a lease may be ahead of the server's clock: members of a replica set differ. */
export const isFromTheFuture: Document = { $gt: ['$lockedAt', { $add: ['$$NOW', STEP_SLACK_MS] }] }

/**
 * Leases of before the server's clock stepped back. By that clock they last longer by the whole step, also those of replicas
 * that are gone.
 * @param until none is later: so that documents which sleep for long needn't be read
 */
export const futureLeases = (terms: Terms, phases: readonly string[], until: Date = PARKED_AT): Filter<Document> => ({
  phase: { $in: [...phases] },
  lockedAt: { $gt: new Date(0), $lt: until },
  lockedBy: { $type: 'string' },
  $and: [{ $expr: isFromTheFuture }, leaseUnmoved(terms)],
})

/**
 * Lets such leases begin anew now. That is what a renewal writes, so it takes nothing from a holder that lives: what it believes
 * in ends no later, and its next renewal comes before that. One that is gone sends none, and its documents are due after
 * lockTimeout, as after any crash. Whoever does it needn't know who is gone.
 * @returns how many
 */
export async function redateLeases(
  collection: Collection,
  terms: Terms,
  phases: readonly string[],
  until?: Date,
): Promise<number> {
  const filter = futureLeases(terms, phases, until)
  const stillSo = (ids: readonly unknown[]) => ({ ...filter, _id: { $in: ids as never[] } })
  const begunAnew = {
    $set: { lockedAt: '$$NOW', ...(terms.legacyWriters && { [`${terms.progress}.lockedAt`]: '$$NOW' }) },
  }
  const found = await onClaimIndex(collection, (hint) =>
    collection.find(filter, { projection: { _id: 1 }, hint }).toArray(),
  )
  const ids = found.map((document) => document['_id'] as unknown)
  let redated = 0
  for (let from = 0; from < ids.length; from += BATCH) {
    // Those that refuse the write are passed by: what is refused this can't be claimed either.
    const { matched } = await updateAround(collection, ids.slice(from, from + BATCH), stillSo, [begunAnew])
    redated += matched
  }
  return redated
}
