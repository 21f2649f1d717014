import type { Collection, Document, Filter } from 'mongodb'
import { isNotHeld } from '../lease/lease-state.js'
import { outboxAfterRemoval, removedPhase } from '../outbox/outbox.js'
import { historyWith } from '../record/history.js'
import { TASK_LOCK_INIT_TIME } from '../terms/constants.js'
import { type CallbackName, hasOurShape, literal, progressAcrossPhases, type Terms } from '../terms/terms.js'
import type { OwnerWriteOptions } from './owner-writes.js'

/*
 * Removals of documents that have something to tell (docs/callbacks.md). Such a document isn't deleted: it goes to the lifecycle's
 * `removedPhase`, with a last entry in its outbox, in one update. From then on nothing claims, moves or revives it, as all of that names phases
 * that a lifecycle has; what tells the last entry deletes it. Whatever crashes in between leaves a document that is as it was, or one of which it
 * is still to be told.
 */

/** A lifecycle whose removals may have to be told. */
export interface TellingLifecycle {
  readonly lifecycle: string
  readonly callbacks: readonly CallbackName[]
  /** Its own, and those that it has renamed: documents in others aren't its own. */
  readonly phases: readonly string[]
}

/** Who removes it, and why. */
export interface RemovedBy {
  readonly by: string
  readonly reason: string | null
}

/** What became of a removal. */
export type Removed =
  /** It is gone. */
  | 'deleted'
  /** It is deleted when its callbacks have been told. */
  | 'told'

/** Documents whose removal is told, or that have something else to tell before they go. Others are deleted at once. */
export function hasToTell(terms: Terms, { callbacks, phases }: TellingLifecycle): Filter<Document> {
  const untold = { [`${terms.progress}.outbox.next`]: { $exists: true } }
  return {
    phase: { $in: [...phases] },
    $expr: hasOurShape(terms),
    ...(callbacks.includes('onRemoved') ? {} : untold),
  }
}

/** The update of a removal that is told. It ends any lease: the holder's writes match nothing. */
export function removalUpdate(
  terms: Terms,
  { lifecycle, callbacks }: Pick<TellingLifecycle, 'lifecycle' | 'callbacks'>,
  { by, reason }: RemovedBy,
): Document[] {
  const history = historyWith(terms, { outcome: 'remove', reason, by })
  const outbox = outboxAfterRemoval(terms, callbacks, { by, reason })
  const removed = {
    phase: literal(removedPhase(lifecycle)),
    lockedAt: TASK_LOCK_INIT_TIME,
    lockedBy: '$$REMOVE',
    updatedAt: terms.protocol.now(),
    [terms.progress]: { $mergeObjects: [progressAcrossPhases(terms), { history }, outbox] },
  }
  return [{ $set: removed }]
}

/** A document may get something to tell between two writes, but not so often. */
const MOST_ROUNDS = 10

/**
 * Removes one document, if it matches.
 * @param telling undefined: its lifecycle has no callbacks
 * @param unlessHeld not while somebody has a lease on it
 * @param where what else it has to be
 * @returns undefined: there is none, or none that matches; or it is removed already
 */
export async function removeOne(
  documents: Collection,
  terms: Terms,
  telling: TellingLifecycle | undefined,
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
  if (!telling) return (await documents.deleteOne(named(), options)).deletedCount > 0 ? 'deleted' : undefined
  const isThere = { phase: { $ne: removedPhase(telling.lifecycle) } }
  const tells = hasToTell(terms, telling)
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const update = removalUpdate(terms, telling, by)
    if ((await documents.updateOne(named(tells), update, options)).matchedCount > 0) return 'told'
    if ((await documents.deleteOne(named({ $nor: [tells] }, isThere), options)).deletedCount > 0) return 'deleted'
    if ((await documents.countDocuments(named(isThere), { limit: 1, ...options })) === 0) return undefined
  }
  return undefined
}
