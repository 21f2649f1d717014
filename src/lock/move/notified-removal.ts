import type { Collection, Document, Filter } from 'mongodb'
import { isNotHeld } from '../lease/lease-state.js'
import { outboxAfterRemoval, removedPhase } from '../outbox/outbox.js'
import { historyWith } from '../record/step-end.js'
import {
  type CallbackName,
  hasOurShape,
  literal,
  progressAcrossPhases,
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
  {
    _id,
    unlessHeld = false,
    where = {},
  }: { readonly _id: unknown; readonly unlessHeld?: boolean; readonly where?: Filter<Document> },
  by: RemovedBy,
  options: OwnerWriteOptions = {},
): Promise<Removed | undefined> {
  // At the top: a router looks for it there.
  const named = (...also: Filter<Document>[]) => ({
    _id: _id as never,
    $and: [where, ...(unlessHeld ? [isNotHeld(terms)] : []), ...also],
  })
  if (!notifying) return (await documents.deleteOne(named(), options)).deletedCount > 0 ? 'deleted' : undefined
  const isThere = { phase: { $ne: removedPhase(notifying.lifecycle) } }
  const tells = hasToNotify(terms, notifying)
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const update = removalUpdate(terms, notifying, by)
    if ((await documents.updateOne(named(tells), update, options)).matchedCount > 0) return 'told'
    if ((await documents.deleteOne(named({ $nor: [tells] }, isThere), options)).deletedCount > 0) return 'deleted'
    if ((await documents.countDocuments(named(isThere), { limit: 1, ...options })) === 0) return undefined
  }
  return undefined
}
