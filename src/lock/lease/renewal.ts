import type { Collection, Document } from 'mongodb'
import type { Clock } from '../../time/index.js'
import { idKey } from '../documents/id-key.js'
import { AS_IT_STANDS } from '../documents/read-each.js'
import { perUpdate, updateNamed } from '../documents/update-named.js'
import { ID_INDEX, isValidYet, type Terms, withoutClaim } from '../terms/terms.js'
import type { Lease } from './lease.js'
import { leaseUnmoved } from './legacy-writers.js'
import { underClaim } from './token.js'

/* The two writes under a lease that leave its token alone, because they end no step: they may come at any time. */

/**
 * The update of a renewal. `lockedAt` = the later of its stored value and now: a renewal that waited in the server (its `$$NOW` is
 * fixed at its start) never overwrites a newer time with an older one.
 */
export function renewUpdate(terms: Terms): Document[] {
  const lockedAt = { $max: ['$lockedAt', '$$NOW'] }
  if (!terms.legacyWriters) return [{ $set: { lockedAt } }]
  return [{ $set: { lockedAt, [`${terms.progress}.lockedAt`]: lockedAt } }]
}

/**
 * Renews leases with one write, on its own connection, so that a full pool never costs a lease.
 *
 * Invariant: it names the documents that this process works on and the claim under which it holds each, never "everything
 * of mine": a claim whose reply was lost expires. It accepts any step's token of that claim, because a chain of steps
 * changes the token while the renewal is on its way. And it renews nothing once the terms that say how long a lease lasts
 * have gone stale: a renewal that was delayed on its way leaves the leases as they are.
 */
export class Renewals {
  constructor(
    private readonly collection: Collection,
    private readonly terms: () => Terms,
    private readonly clock: Clock,
  ) {}

  /**
   * Renews all that are still this replica's; returns those that aren't, and ends them. If the command fails, or comes when
   * the terms have gone stale, nothing is renewed and the leases go on ageing.
   */
  async renew(leases: readonly Lease[]): Promise<Lease[]> {
    if (leases.length === 0) return []
    const terms = this.terms()
    const sentAtMs = this.clock.monotonicMs()
    const ours = (some: readonly Lease[]) => {
      const [first, ...more] = claimsOf(some)
      return { ...(more.length > 0 ? { $or: [first, ...more] } : first), ...leaseUnmoved(terms) }
    }
    const valid = isValidYet(terms)
    const inTime = valid && { $and: [{ $expr: valid }] }
    const updates = perUpdate(this.collection, leases).map((some) => {
      return { ids: some.map(({ id }) => id), filter: { ...ours(some), ...inTime }, update: renewUpdate(terms) }
    })
    const { matchedCount } = await updateNamed(this.collection, updates)
    const lost = matchedCount === leases.length ? [] : await this.notIn(ours(leases), leases)
    // All share one time limit: if nothing matched but some are still ours, it came too late for all.
    const cameLate = matchedCount === 0 && lost.length < leases.length
    const isLost = new Set(lost)
    // A claim's tokens never come back, so a lost lease stays lost: its step must not begin, or go on trusting it.
    for (const lease of leases) {
      if (isLost.has(lease)) lease.end()
      else if (!cameLate) lease.renewed(sentAtMs, terms.leaseMs)
    }
    return lost
  }

  private async notIn(ours: Document, leases: readonly Lease[]): Promise<Lease[]> {
    const held = await this.collection.find(ours, { projection: { _id: 1 }, hint: ID_INDEX, ...AS_IT_STANDS }).toArray()
    const heldIds = new Set(held.map((document) => idKey(document['_id'])))
    return leases.filter((lease) => !heldIds.has(lease.key))
  }
}

/** The condition on the documents of each claim. */
const claimsOf = (leases: readonly Lease[]): Document[] =>
  [...Map.groupBy(leases, ({ claim }) => claim.number)].map(([claim, members]) => ({
    _id: { $in: members.map((lease) => lease.id) },
    ...underClaim(members[0]!.claim.replica, claim),
  }))

/**
 * Uncounts the claims whose steps were still running when their replica was shut down cleanly: that is no sign of poison. Their
 * leases stay and run out. Each write requires the lease's token.
 */
export async function uncountClaims(collection: Collection, terms: Terms, leases: readonly Lease[]): Promise<void> {
  if (leases.length === 0) return
  const operations = leases.map((lease) => ({
    updateOne: {
      filter: { _id: lease.id as never, lockedBy: lease.token, ...leaseUnmoved(terms) },
      update: [{ $set: { [`${terms.progress}.claims`]: withoutClaim(terms) } }],
      hint: ID_INDEX,
    },
  }))
  await collection.bulkWrite(operations, { ordered: false })
}
