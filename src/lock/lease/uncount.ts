import type { Collection } from 'mongodb'
import { ID_INDEX } from '../terms/constants.js'
import { type Terms, withoutClaim } from '../terms/terms.js'
import type { Lease } from './lease.js'
import { leaseUnmoved } from './legacy-writers.js'

/**
 * Uncounts the claims whose steps were still running when their replica was shut down cleanly: that is no sign of poison.
 * Their leases stay and run out by themselves. Each write requires the lease's token, but doesn't change it, as it ends no
 * step.
 */
export async function uncountClaims(collection: Collection, terms: Terms, leases: readonly Lease[]): Promise<void> {
  if (leases.length === 0) return
  const operations = leases.map((lease) => ({
    updateOne: {
      filter: { _id: lease.id as never, ...terms.protocol.heldBy(lease.token), ...leaseUnmoved(terms) },
      update: [{ $set: { [`${terms.progress}.claims`]: withoutClaim(terms) } }],
      hint: ID_INDEX,
    },
  }))
  await collection.bulkWrite(operations, { ordered: false })
}
