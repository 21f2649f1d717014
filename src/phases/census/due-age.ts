import type { Collection, Document } from 'mongodb'
import {
  countUpTo,
  type DueRange,
  dueBoundAt,
  dueRanges,
  dueSince,
  dueSinceFields,
  dueWithin,
  inPhase,
  leaseStateOf,
  OVERDUE_MS,
  onClaimIndex,
  overdueIn,
  readOwnFields,
  type Terms,
} from '../../lock/index.js'

/** The most documents without `updatedAt` that are read: the index doesn't order them by age. */
const MOST_FRESH = 1_000
const MOST_MS = 5_000

/** Since when the due documents of a phase are due. */
export interface DueAge {
  /** Undefined: none is due, or none says since when. */
  readonly oldest: Date | undefined
  /** Due documents that don't say since when; at most 1,000. */
  readonly undated: number
  /** The number of documents that have been due for over a minute, one more than 10,000 at most. */
  readonly overdue: number
  /** True if a thousand documents without `updatedAt` were judged for more. */
  readonly isPartly: boolean
  /** Some of the oldest. */
  readonly ids: readonly unknown[]
}

const SOME = 3

/**
 * Reads the first documents of each range that the index orders by age: free ones by `updatedAt`, the others by the end of their sleep or
 * lease. The fresh ones, without `updatedAt`, have no such order: of these it takes the first thousand.
 * @param where the phase, as the index alone may answer it
 */
export async function ageOfDue(
  collection: Collection,
  terms: Terms,
  phase: string,
  where: Document,
  now: Date,
): Promise<DueAge> {
  const bound = dueBoundAt(now, terms.lockTimeoutMs)
  const { fresh, released, woken } = dueRanges(bound)
  const options = { projection: dueSinceFields(terms), maxTimeMS: MOST_MS, others: inPhase(phase) }
  const found = await onClaimIndex(collection, async (index) => {
    const first = (range: DueRange, limit: number) =>
      readOwnFields((how) => dueWithin(collection, terms, phase, range, index, { ...options, ...how, limit }).toArray())
    return [await first(fresh, MOST_FRESH), await first(released, SOME), await first(woken, SOME)] as const
  })
  const judged = (documents: readonly Document[]) =>
    documents.flatMap((document) => {
      const at = dueSince(document, terms, now)
      return leaseStateOf(document, terms, now).kind === 'due' ? [{ id: document['_id'] as unknown, at }] : []
    })
  const all = found.flatMap(judged)
  const dated = all.flatMap(({ id, at }) => (at ? [{ id, at }] : [])).sort((a, b) => a.at.getTime() - b.at.getTime())
  const [oldest] = dated
  const isLate = ({ at }: { at: Date }) => now.getTime() - at.getTime() > OVERDUE_MS
  let overdue = 0
  if (oldest && isLate(oldest)) {
    // These the index doesn't count as overdue, because their `updatedAt` says nothing.
    const isUnseen = ({ updatedAt }: Document) => !(updatedAt instanceof Date && isLate({ at: updatedAt }))
    const unseen = judged([...found[0], ...found[1]].filter(isUnseen))
    overdue = unseen.filter(({ at }) => at && isLate({ at })).length
    for (const range of overdueIn(bound, now)) overdue += await countUpTo(collection, { ...where, ...range })
  }
  return {
    oldest: oldest?.at,
    undated: all.length - dated.length,
    overdue,
    isPartly: found[0].length === MOST_FRESH,
    ids: dated.slice(0, SOME).map(({ id }) => id),
  }
}
