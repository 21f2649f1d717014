import type { Collection, Document } from 'mongodb'
import { formatMs } from '../../time/index.js'
import { lookForCandidates } from '../candidates/candidates.js'
import { idKey, withIds } from '../documents/values.js'
import { deleteNamed, type Refused, updateAround } from '../documents/write.js'
import { isDue } from '../lease/lease-state.js'
import { type Quarantined, quarantineAmong } from '../repair/repair.js'
import type { RefusingDocuments } from '../select/refusing-documents.js'
import { choose, extentFor } from '../select/selection.js'
import {
  enteredAt,
  hasOurShape,
  inProgress,
  isPastDate,
  PARKED_AT,
  progressIfOurs,
  type Terms,
} from '../terms/terms.js'
import { type NotifyingLifecycle, removalUpdate } from './notified-removal.js'

export interface RemovalRequest {
  readonly phase: string
  /** The milliseconds that a document is kept after it has entered the phase. */
  readonly keepForMs: number
  readonly limit: number
  readonly dueBound: Date
  readonly random: () => number
  /** Set if removals are delivered to callbacks: the documents are then not deleted, but marked as removed. */
  readonly notifying?: NotifyingLifecycle | undefined
  /** Documents that refuse writes, which are left out; those that refuse the write that arms or marks them are added. */
  readonly refusing?: RefusingDocuments | undefined
}

export interface RemovalResult {
  readonly removed: number
  /**
   * Documents that another writer put into the phase: from now on they sleep until their time, or forever if `progress` is the owner's or `phase`
   * an array.
   */
  readonly armed: number
  /** Those of them that were quarantined. */
  readonly quarantined: readonly Quarantined[]
  readonly refused: readonly Refused[]
}

/**
 * Removes documents of a final phase whose time has come, by the same clock as everything else: no TTL index. No replica holds a due document;
 * both writes judge that again by the server's clock. One without `progress.since` (written into the phase by hand) is kept for `keepFor` from
 * now. One whose phase is an array, or whose `progress` isn't ours, is its owner's and is never deleted. One with undelivered callbacks is kept
 * until they are delivered. If removals are delivered, it is marked as removed and the rest is delivered first.
 */
export async function removeFinal(
  collection: Collection,
  terms: Terms,
  { phase, keepForMs, limit, dueBound, random, refusing, notifying }: RemovalRequest,
): Promise<RemovalResult> {
  const policies = refusing ? [refusing] : []
  const extent = extentFor(policies, phase, limit)
  const { lists } = await lookForCandidates(collection, terms, { phase, extent, dueBound })
  const ids = choose(policies, phase, lists, extent, random).documents.map(({ _id }) => _id as unknown)
  if (ids.length === 0) return { removed: 0, armed: 0, quarantined: [], refused: [] }
  const due = (some: readonly unknown[]) => ({ ...withIds(some), $and: [{ phase, $expr: isDue(terms) }] })
  const isOver = { $expr: { $and: [hasOurShape(terms), hasBeenKept(terms, keepForMs)] } }
  const over = (some: readonly unknown[]) => ({ ...due(some), ...isOver, ...(notifying ? {} : hasDelivered(terms)) })
  const { matched: removed, refused: unmarked } = notifying
    ? await updateAround(collection, ids, over, removalUpdate(terms, notifying, afterKept(keepForMs)))
    : { matched: await deleteNamed(collection, ids, over), refused: [] }
  if (removed === ids.length) return { removed, armed: 0, quarantined: [], refused: [] }
  const left = unmarked.length === 0 ? ids : without(ids, unmarked)
  const { refused: unarmed, matched } = await updateAround(collection, left, due, armed(terms, keepForMs))
  const refused = [...unmarked, ...unarmed]
  for (const { id } of refused) refusing?.add(id)
  const quarantined = matched > 0 ? await quarantineAmong(collection, terms, ids) : []
  return { removed, armed: matched, quarantined, refused }
}

const afterKept = (keepForMs: number) => ({
  by: 'rule',
  reason: keepForMs === 0 ? 'final' : `final, and kept for ${formatMs(keepForMs)}`,
})

function without(ids: readonly unknown[], refused: readonly Refused[]): unknown[] {
  const known = new Set(refused.map(({ id }) => idKey(id)))
  return ids.filter((id) => !known.has(idKey(id)))
}

function hasBeenKept(terms: Terms, keepForMs: number): Document {
  if (keepForMs === 0) return isDue(terms)
  const since = inProgress(terms, 'since')
  const heldMs = terms.hold?.ms ?? 0
  const isOver = { $lte: [{ $add: [since, keepForMs + heldMs] }, '$$NOW'] }
  return { $and: [isDue(terms), isPastDate(since), isOver] }
}

/** Matches documents without undelivered callbacks: others are kept until these are delivered. */
const hasDelivered = ({ callbacks, progress }: Terms): Document =>
  callbacks ? { [`${progress}.outbox.next`]: { $exists: false } } : {}

function untilDelivered(terms: Terms, kept: Document): Document {
  const isOpen = { $ne: [{ $type: inProgress(terms, 'outbox.next') }, 'missing'] }
  const later = { $add: ['$$NOW', UNTOLD_PAUSE_MS] }
  return { $cond: [isOpen, { $max: [kept, later] }, kept] }
}
const UNTOLD_PAUSE_MS = 5_000

function armed(terms: Terms, keepForMs: number): Document[] {
  const entered = enteredAt(terms)
  const kept = { $add: [entered, keepForMs] }
  const resumeAt = terms.callbacks ? untilDelivered(terms, kept) : kept
  const asleep = {
    lockedAt: { $cond: [hasOurShape(terms), { $subtract: [resumeAt, terms.lockTimeoutMs] }, PARKED_AT] },
    lockedBy: '$$REMOVE',
    ...progressIfOurs(terms, { $mergeObjects: [`$${terms.progress}`, { since: entered, resumeAt }] }),
  }
  return [{ $set: asleep }]
}
