import type { Collection, Document, FindCursor } from 'mongodb'
import { idKey } from '../documents/id-key.js'
import { type OwnReading, readOwnFields } from '../documents/read-each.js'
import { type ClaimIndex, onClaimIndex } from '../indexes/claim-index.js'
import { CHECKED_FIELDS } from '../repair/odd-fields.js'
import type { RefusingDocuments } from '../select/refusing-documents.js'
import { NOTHING_LEFT, type Parted, type WorkSplit } from '../select/work-split.js'
import { CLAIM_INDEX, TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import type { Terms } from '../terms/terms.js'
import { type DueRange, dueRanges, dueWithin } from './due-ranges.js'

/** The `_id`s that a claim tries for, oldest first. */
export type CandidateIds = unknown[]

/** What `isLarge` goes by. */
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

/** The ranges of a look for candidates, as cursors, so that a self-test can explain just what a claim runs. */
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
  readonly limit: number
  /** No document at or after this `lockedAt` is due (see ServerClock.dueBound). */
  readonly dueBound: Date
  /** Reads this many times the limit and takes a run of them from a random place; 1 takes the oldest. Default 1. */
  readonly spread?: number | undefined
  readonly random: () => number
  /** Documents that refuse writes: not to be found while their pauses last, and few of them at a time afterwards. */
  readonly skips?: RefusingDocuments | undefined
  /** So many more are read, to be tried in the places of those that refuse. Default: none. */
  readonly reserves?: number | undefined
  /** Whether a candidate may be claimed now; asked of each, in order, and taken at its word. Default: all may. */
  readonly admits?: ((document: Document) => boolean) | undefined
  /** Reads the ranges from their ends: what stands behind any number of documents that refuse is found at once. Default: false. */
  readonly newestFirst?: boolean | undefined
  /** Reads how large each is, too. Default: false. */
  readonly sized?: boolean | undefined
  /** Whom this is shared with. Default: nobody. */
  readonly share?: WorkSplit | undefined
  /** Whether the last look saw so many unlocked documents that it didn't come to the woken ones behind them. */
  readonly crowded?: boolean | undefined
}

export interface Candidates {
  /** With what `oddFields` looks at. */
  readonly documents: Document[]
  /** More of them, for the places of those in `documents` that refuse. */
  readonly reserves: Document[]
  /** Whose share the others are that were seen. */
  readonly parted: Pick<Parted, 'left' | 'againInMs' | 'late'>
  /** Whether there may be more than was read. */
  readonly more: boolean
  readonly crowded: boolean
}

/** More are not read at once, however many replicas share them: 2,000 take the server 12 ms, 500 take 8 (measured). */
const MOST_READ = 2_000

/**
 * Up to `limit` due documents of a phase. On average at least a quarter of the places goes to documents that have slept or
 * were left by a crash, and half of them to those that were unlocked, chains that yielded most of all: both sort behind a
 * stream of new ones and would starve. What one range leaves free the others take. With fewer than four places a draw
 * decides, so that no range starves.
 */
export async function findCandidates(
  collection: Collection,
  terms: Terms,
  request: CandidateRequest,
): Promise<CandidateIds> {
  const { documents } = await findCandidateDocuments(collection, terms, request)
  return documents.map((document) => document['_id'])
}

/** The same with all that the look has shown. */
export async function findCandidateDocuments(
  collection: Collection,
  terms: Terms,
  request: CandidateRequest,
): Promise<Candidates> {
  const { phase, limit, dueBound, spread = 1, random, skips, reserves = 0, admits, share, crowded = false } = request
  const wanted = Math.max(limit, Math.min(MOST_READ, limit * Math.max(spread, share?.of ?? 1)))
  const window = wanted + reserves + (skips?.unnamed ?? 0)
  const found = await onClaimIndex(collection, (index) => {
    const all = (range: keyof CandidateCursors) =>
      readOwnFields((how) => {
        const reading = { ...request, how }
        return candidateCursors(collection, terms, phase, window, dueBound, skips?.ids(), index, reading)[
          range
        ].toArray()
      })
    return Promise.all([all('fresh'), all('waiting'), crowded ? all('woken') : []])
  })
  const again: Document[] = []
  const [fresh, waiting, alsoWoken] = found.map((list) => withoutSkipped(list, skips, again)) as typeof found
  const released = waiting.filter(isReleased)
  const woken = crowded ? alsoWoken : waiting.filter((document) => !isReleased(document))
  const lists = [woken, released, fresh]
  const parted = share?.part(phase, lists, limit) ?? { takes: lists, ...NOTHING_LEFT }
  const takes = admits ? parted.takes.map((list) => list.filter(admits)) : parted.takes
  // What has refused before gets an eighth of the places while others want them.
  const forAgain = again.length > 0 ? Math.min(again.length, Math.floor(limit / 8 + random())) : 0
  const places = placesOf(
    takes.map((list, i) => ({ length: list.length, least: (limit - forAgain) * LEAST_SHARES[i]! })),
    limit - forAgain,
    random,
  )
  const chosen = takes.flatMap((list, i) => (spread > 1 ? runOf(list, places[i]!, random) : list.slice(0, places[i]!)))
  const rest = reserves > 0 ? takes.flatMap((list, i) => list.slice(places[i]!)) : []
  const retried = again.slice(0, limit - chosen.length)
  const documents = eachOnce([...chosen, ...(admits ? retried.filter(admits) : retried)])
  return {
    documents,
    reserves: rest.slice(0, reserves),
    parted,
    more: found[0].length === window || found[1].length === window,
    crowded: released.length >= wanted,
  }
}

/** An array in lockedAt puts one document into several ranges. */
const eachOnce = (documents: readonly Document[]): Document[] => [
  ...new Map(documents.map((document) => [idKey(document['_id']), document])).values(),
]

/** Those of which nothing is known that speaks against them; others whose pause is over are added to `again`. */
function withoutSkipped(list: Document[], skips: RefusingDocuments | undefined, again: Document[]): Document[] {
  if (!skips || skips.size === 0) return list
  return list.filter((document) => {
    const id: unknown = document['_id']
    if (!skips.isSuspect(id)) return true
    if (!skips.isPaused(id)) again.push(document)
    return false
  })
}

const isReleased = ({ lockedAt }: Document): boolean =>
  lockedAt instanceof Date && lockedAt.getTime() === TASK_LOCK_INIT_TIME.getTime()

/** Of woken, unlocked and new documents. */
const LEAST_SHARES = [0.25, 0.5, 0] as const

/** How many of `limit` places each of the lists gets: at least its share of them; what is left goes to the last ones first. */
function placesOf(lists: readonly { length: number; least: number }[], limit: number, random: () => number): number[] {
  let free = limit
  const give = (most: number) => {
    const given = Math.max(0, Math.min(most, free))
    free -= given
    return given
  }
  const places = lists.map(({ length, least }) => give(Math.min(length, Math.floor(least + random()))))
  for (let i = lists.length - 1; i >= 0; i -= 1) places[i]! += give(lists[i]!.length - places[i]!)
  return places
}

/** `length` neighbours from a random place of a list, or all of it when it isn't longer. */
function runOf<T>(list: readonly T[], length: number, random: () => number): readonly T[] {
  const start = Math.floor(random() * (Math.max(0, list.length - length) + 1))
  return list.slice(start, start + length)
}
