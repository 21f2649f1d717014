import type { Collection, Db, Document, Filter } from 'mongodb'
import { onClaimIndex, readOwnFields } from '../documents/read.js'
import { updateMatching } from '../documents/write.js'
import { type LeaseMarking, leaseUnmoved, parseToken } from '../lease/lease.js'
import { TASK_LOCK_INIT_TIME } from '../terms/terms.js'
import { readLockTimeouts } from './in-force.js'

/** The collection of one lifecycle's leases; `phases`: those with claims. */
interface LeasedDocuments {
  readonly lifecycle: string
  readonly collection: Collection<Document>
  readonly phases: readonly string[]
  readonly terms: LeaseMarking
}

/** A lease that begins while the command is on its way is a little newer than the time the command was given. */
const YOUNGER_MS = 10_000

/**
 * Matches the documents that a replica holds, by the held range of the claim index: `lockedAt` no older than its leases can be, and not in the
 * future like that of a longer sleep. It reads the keys of documents that any replica holds or that wake within a lockTimeout, never those of the
 * backlog or of documents at rest.
 * @param since the oldest that a lease of it can be: a lockTimeout before it was last seen
 */
export const heldByReplica = (replica: string, ...range: Parameters<typeof heldSince>): Filter<Document> => ({
  ...heldSince(...range),
  ...withTokenOf(replica),
})

const heldSince = (phases: readonly string[], since: Date, now: Date): Filter<Document> => ({
  phase: { $in: [...phases] },
  lockedAt: { $gte: since, $lte: new Date(now.getTime() + YOUNGER_MS) },
})

/** '$' is the character after '#': the range holds the tokens of this start of a replica and nothing else. */
const withTokenOf = (replica: string): Filter<Document> => ({ lockedBy: { $gte: `${replica}#`, $lt: `${replica}$` } })

export interface LeasesRequest {
  readonly replicas: readonly string[]
  readonly phases: readonly string[]
  /** As for {@link heldByReplica}. */
  readonly since: Date
  readonly now: Date
  readonly lockTimeoutMs: number
  /** The most that are read. */
  readonly limit: number
}

/**
 * Reads documents under a lease of one of these replicas, including expired leases that no replica has taken since; `until`: when the lease ends,
 * or ended.
 */
export async function leasesOf(
  collection: Collection<Document>,
  { replicas, phases, since, now, lockTimeoutMs, limit }: LeasesRequest,
): Promise<{ readonly replica: string; readonly _id: unknown; readonly phase: string; readonly until: Date }[]> {
  const held = { ...heldSince(phases, since, now), $or: replicas.map(withTokenOf) }
  const projection = { phase: 1, lockedAt: 1, lockedBy: 1 }
  const found = await onClaimIndex(collection, (hint) =>
    readOwnFields((how) => collection.find(held, { projection, hint, limit, ...how }).toArray()),
  )
  return found.flatMap(({ _id, phase, lockedAt, lockedBy }) => {
    const replica = typeof lockedBy === 'string' && parseToken(lockedBy)?.replica
    if (!replica || !(lockedAt instanceof Date)) return []
    return [{ replica, _id, phase, until: new Date(lockedAt.getTime() + lockTimeoutMs) }]
  })
}

/**
 * Ends the leases of a process that has ended, as if lockTimeout had passed: the documents are due immediately and otherwise unchanged. Their
 * next claims count as after a crash. Each write is conditional on a token of that very process, and on its lease being unmoved: a legacy writer
 * that took over leaves the token in place.
 *
 * Only for a process that is known to have ended: one that is still running would find its documents taken over.
 * @returns the number of leases that were ended
 */
export async function endLeasesOf(db: Db, leased: LeasedDocuments, replica: string): Promise<number> {
  const { lifecycle, collection, phases, terms } = leased
  const inForce = (await readLockTimeouts(db, [lifecycle])).get(lifecycle)
  if (!inForce || phases.length === 0) return 0
  const { now, dueMs } = inForce
  const held = { ...heldByReplica(replica, phases, new Date(now.getTime() - dueMs), now), ...leaseUnmoved(terms) }
  // A legacy writer may lease the document in the very millisecond of the claim that was just ended. That claim's mark would then match again,
  // and the next pass would take the lease for the dead process's.
  const unmarked = terms.legacyWriters ? [{ $unset: `${terms.progress}.lockedAt` }] : []
  const due = [{ $set: { lockedAt: TASK_LOCK_INIT_TIME } }, ...unmarked]
  return onClaimIndex(collection, (hint) => updateMatching(collection, held, due, { hint }))
}
