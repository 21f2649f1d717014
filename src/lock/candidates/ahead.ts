import type { Collection, Document, Filter } from 'mongodb'
import { onClaimIndex, onIndex, orderIndex } from '../documents/read.js'
import { TASK_LOCK_INIT_TIME } from '../terms/terms.js'
import { RANKS } from './order.js'

/** The kinds of due documents, each of which has its share of a claim's places (candidates.ts). */
export type QueueKind = 'fresh' | 'released' | 'woken'

/** The documents that come before one among the due ones of its kind. */
export interface Ahead {
  readonly kind: QueueKind
  /** At most {@link MOST_AHEAD}, which means that many or more. */
  readonly n: number
}

/** The most index keys that a count reads. */
export const MOST_AHEAD = 1_000
/** A hint for people: it must not keep a connection. */
const MOST_MS = 1_000

/** The documents before it in its part of the claim index, by its kind. One range of keys each, so that no document is read. */
function rangeBefore({ lockedAt, updatedAt }: Document): readonly [kind: QueueKind, range: Filter<Document>] {
  const isDated = lockedAt instanceof Date
  const written = updatedAt instanceof Date ? updatedAt : undefined
  if (isDated && lockedAt > TASK_LOCK_INIT_TIME)
    return ['woken', { lockedAt: { $gt: TASK_LOCK_INIT_TIME, $lt: lockedAt } }]
  if (isDated && written) return ['released', { lockedAt: TASK_LOCK_INIT_TIME, updatedAt: { $lt: written } }]
  if (isDated) return ['fresh', { lockedAt: { $not: { $gte: lockedAt } } }]
  return ['fresh', { lockedAt: lockedAt ?? null, updatedAt: { $not: { $gte: written ?? null } } }]
}

/**
 * Counts the documents that come before a due one among those of its kind in its phase: by the claim index, or among those of the same value of a field by
 * the index of that field. At most {@link MOST_AHEAD} keys are read.
 * @param by the field that puts claims in order, with the values that count as its own
 * @throws MissingIndex
 */
export async function countAhead(
  collection: Collection,
  phase: string,
  document: Document,
  by?: { readonly field: string; readonly values: readonly unknown[] },
): Promise<Ahead> {
  const [kind, range] = rangeBefore(document)
  const count = async (hint: Document, at: Document) => {
    const pipeline = [{ $match: { ...at, phase, ...range } }, { $limit: MOST_AHEAD }, { $count: 'n' }]
    const [found] = await collection.aggregate<{ n: number }>(pipeline, { hint, maxTimeMS: MOST_MS }).toArray()
    return found?.n ?? 0
  }
  if (!by) return { kind, n: await onClaimIndex(collection, (index) => count(index, {})) }
  const at = { [by.field]: { $in: [...by.values] } }
  return { kind, n: await onIndex(collection, orderIndex(by.field), (index) => count(index, at)) }
}

/**
 * Counts the other due documents of a phase, of all kinds and values: at most {@link MOST_AHEAD} keys of the claim index are read.
 * @param dueBefore documents with a later `lockedAt` aren't due
 * @throws MissingIndex
 */
export async function countOtherDue(collection: Collection, phase: string, dueBefore: Date): Promise<number> {
  const where = { phase, lockedAt: { $not: { $gt: dueBefore } } }
  const pipeline = [{ $match: where }, { $limit: MOST_AHEAD + 1 }, { $count: 'n' }]
  const [found] = await onClaimIndex(collection, (hint) =>
    collection.aggregate<{ n: number }>(pipeline, { hint, maxTimeMS: MOST_MS }).toArray(),
  )
  return Math.max((found?.n ?? 0) - 1, 0)
}

/** The values of a rank's field that have the same rank as a document; undefined: it has none. */
export function valuesOfRank(value: unknown): readonly unknown[] | undefined {
  const rank = value == null ? 'normal' : value
  if (typeof rank !== 'string' || !Object.hasOwn(RANKS, rank)) return undefined
  return rank === 'normal' ? [rank, null] : [rank]
}
