import type { Collection, Document } from 'mongodb'
import { sleep } from '../../time/index.js'
import { type ReadEach, readEach, type Unreadable } from '../documents/read-each.js'
import { isDatabaseError, isDefiniteRefusal } from '../documents/write-error.js'
import { type LeaseMarking, leaseUnmoved } from '../lease/legacy-writers.js'
import { ID_INDEX } from '../terms/constants.js'

const FIRST_RETRY_MS = 50
const LAST_RETRY_MS = 500

export interface DoubtfulClaim {
  readonly terms: LeaseMarking
  readonly collection: Collection
  readonly ids: readonly unknown[]
  /** The tokens of its commands. */
  readonly tokens: readonly string[]
  /** What is read of each document. Default: all of it. */
  readonly projection?: Document | undefined
  /** Called once per failed command. */
  readonly onRetry?: ((error: unknown) => void) | undefined
  /** Whether claiming is over. */
  readonly isOver?: (() => boolean) | undefined
}

/**
 * The documents won by a claim whose outcome is unknown (network, timeout, failover), read by its token until the database
 * answers: fewer at a time after each failure, as they may be too large for one answer. Otherwise they would wait until
 * their lease has expired, each counting as a claim without an outcome; one whose lease expires meanwhile is still this
 * replica's to unlock. A claim that arrives after this read is nobody's: it expires.
 * @throws the last error when claiming is over, or when the read is refused
 */
export async function readBackClaim(claim: DoubtfulClaim, unknownOutcome: unknown): Promise<ReadEach> {
  const { terms, collection, ids, tokens, projection, onRetry, isOver } = claim
  const won: { documents: Document[]; unreadable: Unreadable[] } = { documents: [], unreadable: [] }
  let error = unknownOutcome
  let left = ids
  let atOnce = ids.length
  for (let retry = 0; left.length > 0; ) {
    onRetry?.(error)
    await sleep(Math.min(FIRST_RETRY_MS * 2 ** retry, LAST_RETRY_MS))
    if (isOver?.()) throw error
    try {
      while (left.length > 0) {
        const some = left.slice(0, atOnce)
        const ours = { _id: { $in: some as never[] }, lockedBy: { $in: tokens }, ...leaseUnmoved(terms) }
        const reading = projection ? { projection } : {}
        const readConcern = { level: 'majority' as const }
        const options = { hint: ID_INDEX, batchSize: some.length + 1, readConcern, ...reading }
        const read = await readEach(collection, ours, options)
        won.documents.push(...read.documents)
        won.unreadable.push(...read.unreadable)
        left = left.slice(atOnce)
      }
    } catch (failure) {
      if (isDefiniteRefusal(failure) || !isDatabaseError(failure)) throw failure
      error = failure
      retry += 1
      atOnce = Math.ceil(atOnce / 2)
    }
  }
  return won
}
