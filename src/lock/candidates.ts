import { type Collection, type Document, type FindCursor, MinKey } from 'mongodb'
import { type ClaimIndex, claimIndexKey, onClaimIndex } from './claim-index.js'
import { CLAIM_INDEX } from './constants.js'
import { idKey } from './id-key.js'
import { CHECKED_FIELDS } from './odd-fields.js'
import { isDue, type Terms } from './terms.js'

/** The `_id`s that a claim tries for, oldest first. */
export type CandidateIds = unknown[]

interface Range {
  readonly from: unknown
  readonly to: unknown
}

const justAfterEpoch = new Date(1)

/** Free documents: `lockedAt` at epoch, missing, null, or of a type that sorts before dates. */
const FRESH: Range = { from: new MinKey(), to: justAfterEpoch }

/**
 * Candidates of one range, straight off the claim index. No sort: the hinted index gives the order, also where an array
 * has made it multikey; `min`/`max` keep the bounds that `$expr` alone loses there (50 keys instead of 20,001).
 * 100,000 documents of which 99,000 sleep: 1.0 key a document, 0 or 1 when none is due.
 */
function rangeCursor(
  collection: Collection,
  terms: Terms,
  phase: string,
  range: Range,
  limit: number,
  skipped: readonly unknown[],
  index: ClaimIndex,
): FindCursor<Document> {
  const at = (lockedAt: unknown) => claimIndexKey(index, phase, lockedAt)
  const others = skipped.length > 0 ? { _id: { $nin: skipped as never[] } } : {}
  return collection
    .find({ phase, $expr: isDue(terms), ...others }, { projection: CHECKED_FIELDS })
    .hint(index)
    .min(at(range.from))
    .max(at(range.to))
    .limit(limit)
    .batchSize(limit) // else a getMore after the first 101
}

/** Both ranges of a look for candidates, as cursors, so that a self-test can explain just what a claim runs. */
export function candidateCursors(
  collection: Collection,
  terms: Terms,
  phase: string,
  limit: number,
  dueBound: Date,
  skipped: readonly unknown[] = [],
  index: ClaimIndex = CLAIM_INDEX,
): { fresh: FindCursor<Document>; woken: FindCursor<Document> } {
  const woken: Range = { from: justAfterEpoch, to: dueBound > justAfterEpoch ? dueBound : justAfterEpoch }
  return {
    fresh: rangeCursor(collection, terms, phase, FRESH, limit, skipped, index),
    woken: rangeCursor(collection, terms, phase, woken, limit, skipped, index),
  }
}

export interface CandidateRequest {
  readonly phase: string
  readonly limit: number
  /** No document at or after this `lockedAt` is due (see ServerClock.dueBound). */
  readonly dueBound: Date
  /** Reads this many times the limit and takes a run of them from a random place; 1 takes the oldest. */
  readonly spread: number
  readonly random: () => number
  /** Documents that are not to be found, such as those that refuse writes. */
  readonly skipped?: readonly unknown[] | undefined
}

/**
 * Up to `limit` due documents of a phase. On average at least a quarter of the places goes to the range
 * `lockedAt > epoch`, woken and crashed documents, which would otherwise sort behind a stream of new ones and starve; what
 * one range leaves free the other takes. With fewer than four places a draw decides, so that neither range starves.
 */
export async function findCandidates(
  collection: Collection,
  terms: Terms,
  request: CandidateRequest,
): Promise<CandidateIds> {
  const found = await findCandidateDocuments(collection, terms, request)
  return found.map((document) => document['_id'])
}

/** The same with what `oddFields` looks at. */
export async function findCandidateDocuments(
  collection: Collection,
  terms: Terms,
  { phase, limit, dueBound, spread, random, skipped }: CandidateRequest,
): Promise<Document[]> {
  const [fresh, woken] = await onClaimIndex((index) => {
    const cursors = candidateCursors(collection, terms, phase, limit * spread, dueBound, skipped, index)
    return Promise.all([cursors.fresh.toArray(), cursors.woken.toArray()])
  })
  const wokenPlaces = Math.max(Math.floor(limit / 4 + random()), limit - fresh.length)
  const chosen = runOf(woken, Math.min(limit, wokenPlaces), random)
  chosen.push(...runOf(fresh, limit - chosen.length, random))
  // An array in lockedAt puts one document into both ranges.
  return [...new Map(chosen.map((document) => [idKey(document['_id']), document])).values()]
}

/** `length` neighbours from a random place of a list, or all of it when it isn't longer. */
function runOf<T>(list: readonly T[], length: number, random: () => number): T[] {
  const start = Math.floor(random() * (Math.max(0, list.length - length) + 1))
  return list.slice(start, start + length)
}
