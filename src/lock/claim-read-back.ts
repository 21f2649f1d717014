import type { Collection, Document } from 'mongodb'
import { sleep } from '../time/index.js'
import { ID_INDEX } from './constants.js'
import { type LeaseMarking, leaseUnmoved } from './legacy-writers.js'
import { type ReadEach, readEach } from './read-each.js'
import { isDatabaseError, isDefiniteRefusal } from './write-error.js'

const FIRST_RETRY_MS = 50
const LAST_RETRY_MS = 500

export interface DoubtfulClaim {
  readonly terms: LeaseMarking
  readonly collection: Collection
  readonly ids: readonly unknown[]
  readonly token: string
  /** What is read of each. Default: all of it. */
  readonly projection?: Document | undefined
  /** Told once for each failed command. */
  readonly onRetry?: ((error: unknown) => void) | undefined
  /** Whether nothing is to be claimed any more. */
  readonly isOver?: (() => boolean) | undefined
}

/**
 * The documents that a claim has won whose outcome is unknown (network, timeout, failover), read by its token until the
 * database answers. Left alone they would lie until their lease has passed, each a claim without an outcome; one whose
 * lease has passed meanwhile is still this replica's to unlock. A claim that arrives after this read is nobody's: it expires.
 * @throws the last error when claiming is over, or when the read is refused
 */
export async function readBackClaim(claim: DoubtfulClaim, unknownOutcome: unknown): Promise<ReadEach> {
  const { terms, collection, ids, token, projection, onRetry, isOver } = claim
  let error = unknownOutcome
  for (let retry = 0; ; retry += 1) {
    onRetry?.(error)
    await sleep(Math.min(FIRST_RETRY_MS * 2 ** retry, LAST_RETRY_MS))
    if (isOver?.()) throw error
    try {
      const won = { _id: { $in: ids as never[] }, lockedBy: token, ...leaseUnmoved(terms) }
      const reading = projection ? { projection } : {}
      const readConcern = { level: 'majority' as const }
      const options = { hint: ID_INDEX, batchSize: ids.length + 1, readConcern, ...reading }
      return await readEach(collection, won, options)
    } catch (failure) {
      if (isDefiniteRefusal(failure) || !isDatabaseError(failure)) throw failure
      error = failure
    }
  }
}
