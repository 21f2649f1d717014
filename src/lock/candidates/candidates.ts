import type { Collection, Document, FindCursor } from 'mongodb'
import { type ClaimIndex, type OrderIndex, type OwnReading, onClaimIndex, readOwnFields } from '../documents/read.js'
import { CHECKED_FIELDS } from '../documents/values.js'
import type { PhaseMemory } from '../select/phase-memory.js'
import type { CandidateGroup, CandidateList, Extent } from '../select/selection.js'
import { CLAIM_INDEX, TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'
import { dueRanges, dueWithin } from './due-ranges.js'

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
