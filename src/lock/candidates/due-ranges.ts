import { type Collection, type Document, type Filter, type FindCursor, type FindOptions, MinKey } from 'mongodb'
import { AS_IT_STANDS, type ClaimIndex, type OrderIndex } from '../documents/read.js'
import { dueIn } from '../lease/lease-state.js'
import { TASK_LOCK_INIT_TIME, type Terms } from '../terms/terms.js'

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
