import type { Collection, Document, FindCursor } from 'mongodb'
import { type OwnReading, readOwnFields } from '../documents/read-each.js'
import { type ClaimIndex, onClaimIndex } from '../indexes/claim-index.js'
import { CHECKED_FIELDS } from '../repair/odd-fields.js'
import type { RefusingDocuments } from '../select/refusing-documents.js'
import { type CandidateList, choose, type Extent, extentFor } from '../select/selection.js'
import { CLAIM_INDEX, TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import type { Terms } from '../terms/terms.js'
import { type DueRange, dueRanges, dueWithin } from './due-ranges.js'

/** What `isLarge` needs. */
const SIZE = { bytes: { $bsonSize: '$$ROOT' } } as const

/** How a range is read. */
interface Reading {
  readonly newestFirst?: boolean | undefined
  readonly sized?: boolean | undefined
  readonly how?: OwnReading | undefined
}

/** The claim index read from its end. */
const BACKWARDS = { phase: -1, lockedAt: -1, updatedAt: -1 } as const

export interface CandidateCursors {
  readonly fresh: FindCursor<Document>
  /** What was unlocked, then what has woken. */
  readonly waiting: FindCursor<Document>
  /** The second part of `waiting`. */
  readonly woken: FindCursor<Document>
}

/** The ranges of a look for candidates, as cursors, so that a self-test can explain exactly what a claim runs. */
export function candidateCursors(
  collection: Collection,
  terms: Terms,
  phase: string,
  limit: number,
  dueBound: Date,
  skipped: readonly unknown[] = [],
  index: ClaimIndex = CLAIM_INDEX,
  { newestFirst = false, sized = false, how }: Reading = {},
): CandidateCursors {
  const ranges = dueRanges(dueBound)
  const options = {
    limit,
    projection: { ...CHECKED_FIELDS, [`${terms.progress}.claims`]: 1, ...(sized ? SIZE : {}) },
    others: skipped.length > 0 ? { _id: { $nin: skipped as never[] } } : {},
    ...(newestFirst ? { sort: BACKWARDS } : {}),
    ...how,
  }
  const within = (range: DueRange) => dueWithin(collection, terms, phase, range, index, options)
  return { fresh: within(ranges.fresh), waiting: within(ranges.waiting), woken: within(ranges.woken) }
}

export interface CandidateRequest {
  readonly phase: string
  readonly extent: Omit<Extent, 'places'>
  /** No document at or after this `lockedAt` is due (see dueBoundAt). */
  readonly dueBound: Date
  /** Reads how large each is, too. Default: false. */
  readonly sized?: boolean | undefined
  /** Whether the last look saw so many unlocked documents that it didn't get to the woken ones behind them. */
  readonly crowded?: boolean | undefined
}

/** What a look for candidates has shown, with the fields of each document that `oddFields` checks. */
export interface Seen {
  readonly lists: readonly CandidateList[]
  /** Whether there may be more than was read. */
  readonly more: boolean
  readonly crowded: boolean
}

/**
 * Due documents of a phase, by kind. On average at least a quarter of the places goes to documents that have slept or were left by a
 * crash, and half to those that were unlocked, mostly chains that yielded: both sort behind a stream of new documents and would starve.
 */
export async function lookForCandidates(
  collection: Collection,
  terms: Terms,
  { phase, extent, dueBound, sized, crowded = false }: CandidateRequest,
): Promise<Seen> {
  const { wanted, spare, passed, without, newestFirst } = extent
  const window = wanted + spare + passed
  const [fresh, waiting, alsoWoken] = await onClaimIndex(collection, (index) => {
    const all = (range: keyof CandidateCursors) =>
      readOwnFields((how) => {
        const reading = { newestFirst, sized, how }
        const cursors = candidateCursors(collection, terms, phase, window, dueBound, without, index, reading)
        return cursors[range].toArray()
      })
    return Promise.all([all('fresh'), all('waiting'), crowded ? all('woken') : []])
  })
  const released = waiting.filter(isReleased)
  const woken = crowded ? alsoWoken : waiting.filter((document) => !isReleased(document))
  return {
    lists: [
      { least: 0.25, documents: woken },
      { least: 0.5, documents: released },
      { least: 0, documents: fresh },
    ],
    more: fresh.length === window || waiting.length === window,
    crowded: released.length >= wanted,
  }
}

/** The `_id`s of up to `limit` due documents of a phase, for a write that takes no lease. */
export async function findCandidates(
  collection: Collection,
  terms: Terms,
  {
    phase,
    limit,
    dueBound,
    random,
    refusing,
  }: { phase: string; limit: number; dueBound: Date; random: () => number; refusing?: RefusingDocuments | undefined },
): Promise<unknown[]> {
  const policies = refusing ? [refusing] : []
  const extent = extentFor(policies, phase, limit)
  const { lists } = await lookForCandidates(collection, terms, { phase, extent, dueBound })
  return choose(policies, phase, lists, extent, random).documents.map((document) => document['_id'])
}

const isReleased = ({ lockedAt }: Document): boolean =>
  lockedAt instanceof Date && lockedAt.getTime() === TASK_LOCK_INIT_TIME.getTime()
