import type { Collection, Document, Filter } from 'mongodb'
import { formatMs } from '../../time/index.js'
import { lookForCandidates } from '../candidates/candidates.js'
import { idKey, withIds } from '../documents/values.js'
import { deleteNamed, type Refused, updateAround } from '../documents/write.js'
import { isDue, isNotHeld } from '../lease/lease-state.js'
import { outboxAfterRemoval, removedPhase } from '../outbox/outbox.js'
import { historyWith } from '../record/step-end.js'
import { type Quarantined, quarantineAmong } from '../repair/repair.js'
import { PhaseMemory } from '../select/phase-memory.js'
import type { RefusingDocuments } from '../select/refusing-documents.js'
import { choose, extentFor } from '../select/selection.js'
import {
  type CallbackName,
  enteredAt,
  hasOurShape,
  inProgress,
  isPastDate,
  literal,
  PARKED_AT,
  progressAcrossPhases,
  progressIfOurs,
  TASK_LOCK_INIT_TIME,
  type Terms,
} from '../terms/terms.js'
import type { OwnerWriteOptions } from './owner-writes.js'

/*
 * Removals of documents that have something to deliver (docs/callbacks.md). Such a document isn't deleted: it goes to the lifecycle's
 * `removedPhase`, with a last entry in its outbox, in one update. From then on nothing claims, moves or revives it, because all of that names
 * phases that a lifecycle has; the delivery of the last entry deletes it. A crash in between leaves a document that is as it was, or one with an
 * undelivered removal.
 */

/** A lifecycle whose removals may have to be delivered. */
export interface NotifyingLifecycle {
  readonly lifecycle: string
  readonly callbacks: readonly CallbackName[]
  /** Its own phases, and those that it has renamed: documents in others aren't its own. */
  readonly phases: readonly string[]
}

/** The remover and the reason. */
export interface RemovedBy {
  readonly by: string
  readonly reason: string | null
}

/** The outcome of a removal. */
export type Removed =
  /** It is gone. */
  | 'deleted'
  /** It is deleted once its callbacks are delivered. */
  | 'told'

/** Matches documents whose removal is delivered, or that have other callbacks to deliver before they go. Others are deleted immediately. */
export function hasToNotify(terms: Terms, { callbacks, phases }: NotifyingLifecycle): Filter<Document> {
  const undelivered = { [`${terms.progress}.outbox.next`]: { $exists: true } }
  return {
    phase: { $in: [...phases] },
    $expr: hasOurShape(terms),
    ...(callbacks.includes('onRemoved') ? {} : undelivered),
  }
}

/** The update of a removal that is delivered. It ends any lease: the holder's writes match nothing. */
export function removalUpdate(
  terms: Terms,
  { lifecycle, callbacks }: Pick<NotifyingLifecycle, 'lifecycle' | 'callbacks'>,
  { by, reason }: RemovedBy,
): Document[] {
  const history = historyWith(terms, { outcome: 'remove', reason, by })
  const outbox = outboxAfterRemoval(terms, callbacks, { by, reason })
  const removed = {
    phase: literal(removedPhase(lifecycle)),
    lockedAt: TASK_LOCK_INIT_TIME,
    lockedBy: '$$REMOVE',
    updatedAt: '$$NOW',
    [terms.progress]: { $mergeObjects: [progressAcrossPhases(terms), { history }, outbox] },
  }
  return [{ $set: removed }]
}

/** The limit of rounds: a document may get something to deliver between two writes, but not this often. */
const MOST_ROUNDS = 10

/**
 * Removes one document, if it matches.
 * @param notifying undefined: its lifecycle has no callbacks
 * @param unlessHeld not while a replica has a lease on it
 * @param where its further conditions
 * @returns undefined: there is no such document, or none that matches; or it is removed already
 */
export async function removeOne(
  documents: Collection,
  terms: Terms,
  notifying: NotifyingLifecycle | undefined,
  of: RemovalOf,
  by: RemovedBy,
  options: OwnerWriteOptions = {},
): Promise<Removed | undefined> {
  const { marked, deleted, there } = removalFilters(terms, notifying, of)
  if (!notifying) return (await documents.deleteOne(deleted, options)).deletedCount > 0 ? 'deleted' : undefined
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const update = removalUpdate(terms, notifying, by)
    if ((await documents.updateOne(marked!, update, options)).matchedCount > 0) return 'told'
    if ((await documents.deleteOne(deleted, options)).deletedCount > 0) return 'deleted'
    if ((await documents.countDocuments(there, { limit: 1, ...options })) === 0) return undefined
  }
  return undefined
}

/** The document to be removed, and the conditions. */
export interface RemovalOf {
  readonly _id: unknown
  readonly unlessHeld?: boolean
  readonly where?: Filter<Document>
}

/** The conditions of a removal. `marked`: it has something to deliver; absent: its lifecycle has no callbacks. `deleted`: it goes at once. */
export function removalFilters(
  terms: Terms,
  notifying: NotifyingLifecycle | undefined,
  { _id, unlessHeld = false, where = {} }: RemovalOf,
): { readonly marked?: Filter<Document>; readonly deleted: Filter<Document>; readonly there: Filter<Document> } {
  // At the top: a router looks for it there.
  const named = (...also: Filter<Document>[]) => ({
    _id: _id as never,
    $and: [where, ...(unlessHeld ? [isNotHeld(terms)] : []), ...also],
  })
  if (!notifying) return { deleted: named(), there: named() }
  const isThere = { phase: { $ne: removedPhase(notifying.lifecycle) } }
  const tells = hasToNotify(terms, notifying)
  return { marked: named(tells), deleted: named({ $nor: [tells] }, isThere), there: named(isThere) }
}

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
  const memory = new PhaseMemory(phase)
  const extent = extentFor(policies, memory, limit)
  const { lists } = await lookForCandidates(collection, terms, { memory, extent, dueBound })
  const ids = choose(policies, memory, lists, extent, random).documents.map(({ _id }) => _id as unknown)
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
