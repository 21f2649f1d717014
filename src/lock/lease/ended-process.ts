import type { Collection, Db, Document, Filter, UpdateFilter } from 'mongodb'
import { onClaimIndex } from '../indexes/claim-index.js'
import { TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import { readLockTimeouts } from '../terms/lock-timeout.js'
import { type LeaseMarking, leaseUnmoved } from './legacy-writers.js'

/** Where the leases of one lifecycle are. */
export interface LeasedDocuments {
  readonly lifecycle: string
  readonly collection: Collection<Document>
  /** The phases in which documents are claimed. */
  readonly phases: readonly string[]
  readonly terms: LeaseMarking
}

/** A lease that begins while the command is on its way is a little younger than the time that the command knows. */
const YOUNGER_MS = 10_000

/**
 * Matches the documents that a replica holds, by the held range of the claim index: `lockedAt` no older than a lease may be,
 * and not in the future, as that of a document that sleeps for longer. It reads the keys of documents that anybody holds, or
 * that wake within a lockTimeout; never those of the backlog, or of documents at rest.
 */
export function heldByReplica(
  replica: string,
  phases: readonly string[],
  now: Date,
  lockTimeoutMs: number,
): Filter<Document> {
  return {
    phase: { $in: [...phases] },
    lockedAt: { $gte: new Date(now.getTime() - lockTimeoutMs), $lte: new Date(now.getTime() + YOUNGER_MS) },
    // '$' is the character after '#': the range holds the tokens of this start of a replica and nothing else.
    lockedBy: { $gte: `${replica}#`, $lt: `${replica}$` },
  }
}

/**
 * Ends the leases of a process that has ended, as if its lockTimeout had passed: the documents are due at once, and all else of
 * them stays. Their next claims count as after a crash. Each write is conditional on a token of that very
 * process, and on its lease being where it was: a writer of the old kind that took over leaves the token there.
 *
 * Only for a process that is known to have ended: one that goes on would find its documents taken over.
 * @returns how many
 */
export async function endLeasesOf(db: Db, leased: LeasedDocuments, replica: string): Promise<number> {
  const { lifecycle, collection, phases, terms } = leased
  const inForce = (await readLockTimeouts(db, [lifecycle])).get(lifecycle)
  if (!inForce || phases.length === 0) return 0
  const held = { ...heldByReplica(replica, phases, inForce.now, inForce.dueMs), ...leaseUnmoved(terms) }
  const due = { $set: { lockedAt: TASK_LOCK_INIT_TIME }, ...unmarked(terms) }
  const { modifiedCount } = await onClaimIndex(collection, (hint) => collection.updateMany(held, due, { hint }))
  return modifiedCount
}

/**
 * Such a writer may lease the document now within the very millisecond of the claim that has just been ended, so that the mark of
 * that claim would be right again: the next pass would take it for the dead process's lease.
 */
const unmarked = ({ legacyWriters, progress }: LeaseMarking): UpdateFilter<Document> =>
  legacyWriters ? { $unset: { [`${progress}.lockedAt`]: '' } } : {}
