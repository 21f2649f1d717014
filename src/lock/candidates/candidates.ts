import { type Collection, type Document, type Filter, type FindCursor, type FindOptions, MinKey } from 'mongodb'
import {
  AS_IT_STANDS,
  type ClaimIndex,
  type OrderIndex,
  type OwnReading,
  onClaimIndex,
  readOwnFields,
} from '../documents/read.js'
import { CHECKED_FIELDS } from '../documents/values.js'
import { dueIn } from '../lease/lease-state.js'
import type { PhaseMemory } from '../select/phase-memory.js'
import type { CandidateGroup, CandidateList, Extent } from '../select/selection.js'
import { CLAIM_INDEX, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

/** A place in the claim index: a `lockedAt`, and within it an `updatedAt` (by default the first). */
interface Place {
  readonly lockedAt: unknown
  readonly updatedAt?: Date | MinKey
}

/** A piece of the claim index whose documents are due, excluding its end. */
export interface DueRange {
  readonly from: Place
  readonly to: Place
}

/** The earliest date that JavaScript has: a document without a date sorts before it. */
const EARLIEST = new Date(-8.64e15)

/** Documents that no writer has touched: `lockedAt` missing or of a type that sorts before dates, or epoch and no `updatedAt`. */
const FIRST_DUE: Place = { lockedAt: new MinKey() }
/** Documents that were unlocked: `lockedAt` is epoch, and there is an `updatedAt`, oldest first. */
const FIRST_RELEASED: Place = { lockedAt: TASK_LOCK_INIT_TIME, updatedAt: EARLIEST }
/** Documents that slept, or that a crash left leased, by the time at which they came due. */
const FIRST_WOKEN: Place = { lockedAt: new Date(1) }

/**
 * The pieces of a phase in the claim index where documents may be due.
 * @param dueBound no document at or after this `lockedAt` is due (see dueBoundAt)
 */
export function dueRanges(dueBound: Date) {
  const end = dueBound > FIRST_WOKEN.lockedAt! ? { lockedAt: dueBound } : FIRST_WOKEN
  return {
    /** Documents that no writer has touched. */
    fresh: { from: FIRST_DUE, to: FIRST_RELEASED },
    /** Documents that were unlocked. */
    released: { from: FIRST_RELEASED, to: FIRST_WOKEN },
    /** Documents that were unlocked, then those that have woken. */
    waiting: { from: FIRST_RELEASED, to: end },
    woken: { from: FIRST_WOKEN, to: end },
  } as const satisfies Record<string, DueRange>
}

interface DueOptions extends FindOptions {
  readonly limit: number
  readonly others?: Filter<Document>
  readonly at?: Document
}

/**
 * Reads due documents of one range, straight off the claim index. No sort: the hinted index gives the order, even if an array has
 * made it multikey; `min`/`max` keep the bounds that `$expr` alone then loses (50 keys instead of 20,001). With 99,000 of 100,000
 * documents asleep: 1.0 key per document, 0 or 1 when no document is due.
 * @param options `at`: the value of the field that an {@link OrderIndex} begins with
 */
export function dueWithin(
  collection: Collection,
  terms: Terms,
  phase: string,
  { from, to }: DueRange,
  index: ClaimIndex | OrderIndex,
  { others = {}, at = {}, ...options }: DueOptions,
): FindCursor<Document> {
  // With all of the index's fields, because `min` and `max` need them.
  const last = '_id' in index && { _id: new MinKey() }
  const firstAt = ({ lockedAt, updatedAt = new MinKey() }: Place) => ({ ...at, phase, lockedAt, updatedAt, ...last })
  return collection
    .find({ ...dueIn(terms, phase), ...others }, { ...AS_IT_STANDS, ...options })
    .hint(index)
    .min(firstAt(from))
    .max(firstAt(to))
    .batchSize(options.limit) // else a getMore after the first 101
}

/** The projection that `isLarge` needs. */
const SIZE = { bytes: { $bsonSize: '$$ROOT' } } as const

/** An index read from its end. */
const backwards = (index: Document) => Object.fromEntries(Object.keys(index).map((field) => [field, -1 as const]))

/** The ranges that a look for candidates reads: `waiting` is the unlocked documents, then the woken ones. */
export const CANDIDATE_RANGES = ['fresh', 'waiting', 'woken'] as const

/** The way a range is read; by default oldest first, from the claim index. */
interface Reading extends Partial<OwnReading> {
  readonly limit: number
  readonly dueBound: Date
  readonly without?: readonly unknown[]
  readonly index?: ClaimIndex | OrderIndex
  /** The value of the field that an {@link OrderIndex} begins with. */
  readonly at?: Document
  readonly newestFirst?: boolean
  readonly sized?: boolean
  /** Fields to be read besides those of the protocol. */
  readonly also?: Document
}

/** One range of a look for candidates, as a cursor, so that a self-test can explain exactly what a claim runs. */
export function candidateCursor(
  collection: Collection,
  terms: Terms,
  phase: string,
  range: (typeof CANDIDATE_RANGES)[number],
  { dueBound, without = [], index = CLAIM_INDEX, newestFirst, sized, also, ...how }: Reading,
): FindCursor<Document> {
  return dueWithin(collection, terms, phase, dueRanges(dueBound)[range], index, {
    projection: candidateFields(terms, { sized, also }),
    others: without.length > 0 ? { _id: { $nin: without as never[] } } : {},
    ...(newestFirst && { sort: backwards(index) }),
    ...how,
  })
}

/** The projection of a candidate. */
export const candidateFields = (terms: Terms, { sized, also }: Pick<CandidateRequest, 'sized' | 'also'>): Document => ({
  ...CHECKED_FIELDS,
  [`${terms.progress}.claims`]: 1,
  ...(sized && SIZE),
  ...also,
})

export interface CandidateRequest {
  /** The phase, and what is known from earlier looks at it. */
  readonly memory: PhaseMemory
  readonly extent: Omit<Extent, 'places'>
  /** No document at or after this `lockedAt` is due (see dueBoundAt). */
  readonly dueBound: Date
  /** Also reads the size of each. Default: false. */
  readonly sized?: boolean | undefined
  /** Fields to be read besides those of the protocol. */
  readonly also?: Document | undefined
  /** Values that get no turn (see order.ts). */
  readonly full?: readonly unknown[]
}

/** The candidates that a look has found, with the fields of each document that `oddFields` checks. */
export interface Seen {
  readonly lists: readonly CandidateList[]
  /** True if there may be more than was read. */
  readonly more: boolean
}

/**
 * Finds due documents of a phase, by kind. On average at least a quarter of the places goes to documents that have slept or were
 * left by a crash, and half to those that were unlocked, mostly chains that yielded: both sort behind a stream of new documents and
 * would starve.
 */
export async function lookForCandidates(
  collection: Collection,
  terms: Terms,
  { memory, extent, dueBound, sized = false, also = {} }: CandidateRequest,
): Promise<Seen> {
  const { wanted, spare, passed, without, newestFirst } = extent
  const limit = wanted + spare + passed
  const { isCrowded } = memory
  const [fresh, waiting, alsoWoken] = await onClaimIndex(collection, (index) => {
    const reading = { limit, dueBound, without, index, newestFirst, sized, also }
    const all = (range: (typeof CANDIDATE_RANGES)[number]) =>
      readOwnFields((how) => candidateCursor(collection, terms, memory.phase, range, { ...reading, ...how }).toArray())
    return Promise.all([all('fresh'), all('waiting'), isCrowded ? all('woken') : []])
  })
  const { released, woken } = divided(waiting)
  memory.isCrowded = released.length >= wanted
  return {
    lists: byKind(fresh, released, isCrowded ? alsoWoken : woken),
    more: fresh.length === limit || waiting.length === limit,
  }
}

/** The lists of one look, or of one group of it. */
export const byKind = (
  fresh: readonly Document[],
  released: readonly Document[],
  woken: readonly Document[],
  group?: CandidateGroup,
): CandidateList[] => [
  { least: 0.25, documents: woken, group },
  { least: 0.5, documents: released, group },
  { least: 0, documents: fresh, group },
]

/** Splits waiting documents into those that were unlocked and those that have woken. */
export const divided = (waiting: readonly Document[]) => ({
  released: waiting.filter(isReleased),
  woken: waiting.filter((document) => !isReleased(document)),
})

const isReleased = ({ lockedAt }: Document): boolean =>
  lockedAt instanceof Date && lockedAt.getTime() === TASK_LOCK_INIT_TIME.getTime()
