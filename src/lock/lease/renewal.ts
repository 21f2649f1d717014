import type { Collection, Document } from 'mongodb'
import type { Clock } from '../../time/index.js'
import { idKey } from '../documents/id-key.js'
import { AS_IT_STANDS } from '../documents/read-each.js'
import { ID_INDEX } from '../terms/constants.js'
import { isValidYet, type Terms } from '../terms/terms.js'
import type { Lease } from './lease.js'
import { leaseUnmoved } from './legacy-writers.js'

/**
 * `lockedAt` = the later of what stands there and now: a renewal that waited in the server (its `$$NOW` is that of its
 * start) never writes an older time over a newer one.
 */
export function renewUpdate(terms: Terms): Document[] {
  const lockedAt = { $max: ['$lockedAt', terms.protocol.now()] }
  if (!terms.legacyWriters) return [{ $set: { lockedAt } }]
  return [{ $set: { lockedAt, [`${terms.progress}.lockedAt`]: lockedAt } }]
}

interface ClaimBranch {
  readonly filter: Document
  readonly leases: Lease[]
}

/**
 * Renews leases with one write, on a connection of its own so that a full pool never costs a lease.
 *
 * Invariant: it names the documents that this process works on and the claim under which it holds each, never "all that is
 * mine": a claim whose reply was lost expires. It accepts any step's token of that claim, because a chain of steps changes
 * the token while the renewal is on its way. And it renews nothing once the terms have come of age, by which it says how long
 * a lease lasts from then on: one that was held up on its way leaves the leases as they are.
 */
export class Renewals {
  constructor(
    private readonly collection: Collection,
    private readonly terms: () => Terms,
    private readonly clock: Clock,
  ) {}

  /**
   * Renews all that are still this replica's; returns those that aren't, and ends them. A lease that can't be asked for, or only
   * when the terms have come of age, isn't renewed: its age goes on.
   */
  async renew(leases: readonly Lease[]): Promise<Lease[]> {
    if (leases.length === 0) return []
    const terms = this.terms()
    const sentAtMs = this.clock.monotonicMs()
    if (!terms.protocol.sendsRenewals) {
      for (const lease of leases) lease.renewed(sentAtMs, terms.leaseMs)
      return []
    }
    const branches = branchesOf(terms, leases)
    const ours = { $or: branches.map((branch) => branch.filter), ...leaseUnmoved(terms) }
    const valid = isValidYet(terms)
    const inTime = valid ? { ...ours, $and: [{ $expr: valid }] } : ours
    const { matchedCount } = await this.collection.updateMany(inTime, renewUpdate(terms), { hint: ID_INDEX })
    const lost = matchedCount === leases.length ? [] : await this.notIn(ours, leases)
    // The time is one for all: where none matched that is still there, it was too late for all.
    const cameLate = matchedCount === 0 && lost.length < leases.length
    const isLost = new Set(lost)
    // Tokens of a claim never come back, so what is lost stays lost: its step must not begin, or go on believing.
    for (const lease of leases) {
      if (isLost.has(lease)) lease.end()
      else if (!cameLate) lease.renewed(sentAtMs, terms.leaseMs)
    }
    return lost
  }

  private async notIn(ours: Document, leases: readonly Lease[]): Promise<Lease[]> {
    const held = await this.collection.find(ours, { projection: { _id: 1 }, hint: ID_INDEX, ...AS_IT_STANDS }).toArray()
    const heldIds = new Set(held.map((document) => idKey(document['_id'])))
    return leases.filter((lease) => !heldIds.has(idKey(lease.id)))
  }
}

function branchesOf(terms: Terms, leases: readonly Lease[]): ClaimBranch[] {
  const byClaim = new Map<number, Lease[]>()
  for (const lease of leases) {
    const sameClaim = byClaim.get(lease.claim.number)
    if (sameClaim) sameClaim.push(lease)
    else byClaim.set(lease.claim.number, [lease])
  }
  return [...byClaim].map(([claim, members]) => ({
    filter: {
      _id: { $in: members.map((lease) => lease.id) },
      ...terms.protocol.leasedBy(members[0]!.claim.replica, claim),
    },
    leases: members,
  }))
}
