import type { Collection, Document, Filter } from 'mongodb'
import { idsOf, updateApart, writeAround } from '../documents/write-around.js'
import { onClaimIndex } from '../indexes/claim-index.js'
import { STEP_SLACK_MS } from '../terms/clock-steps.js'
import { ID_INDEX, PARKED_AT } from '../terms/constants.js'
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
  let redated = 0
  // Those that refuse the write are passed by: what is refused this can't be claimed either.
  const redate = (group: readonly unknown[]) =>
    writeAround(group, {
      together: async (ids) => {
        redated += (await collection.updateMany(stillSo(ids), [begunAnew], { hint: ID_INDEX })).modifiedCount
      },
      apart: async (ids) => {
        const updates = ids.map((id) => ({ id, filter: stillSo([id]), update: [begunAnew] }))
        const { refused, matched } = await updateApart(collection, updates)
        redated += matched
        return refused
      },
      leftOf: (ids) => idsOf(collection, stillSo(ids)),
    })
  const ids = await onClaimIndex(collection, (hint) =>
    collection.find(filter, { projection: { _id: 1 }, hint }).toArray(),
  )
  for (let from = 0; from < ids.length; from += BATCH) {
    await redate(ids.slice(from, from + BATCH).map((document) => document['_id']))
  }
  return redated
}
