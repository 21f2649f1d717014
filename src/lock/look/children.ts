import type { Collection, Document, Filter } from 'mongodb'
import { COMMITTED, MissingIndex, onIndex, ownersReading, readOwnFields, withOwnNumbers } from '../documents/read.js'
import { idKey } from '../documents/values.js'
import { deleteMatching, updateMatching } from '../documents/write.js'
import { IS_PARKED, LEASE_FIELDS, NOT_PARKED, WITHOUT_TOKEN } from '../lease/lease-state.js'
import { idleParking, type StoppedBy } from '../move/owner-writes.js'
import { hasToNotify, type NotifyingLifecycle, type RemovedBy, removalUpdate } from '../move/removal.js'
import { removedPhase } from '../outbox/outbox.js'
import { pendingState } from '../record/pending-insert.js'
import { type DocumentName, parentIn, type StoredParent } from '../record/progress.js'
import { ID_INDEX, literal, type Terms, termsOf } from '../terms/terms.js'

/**
 * Serves every question about a document's children: their number in each phase, or whether one is open. Only in collections of lifecycles that
 * declare that their documents may be children.
 */
export const childIndex = (progress: string): Readonly<Record<string, 1>> => ({
  [`${progress}.parent.id`]: 1,
  [`${progress}.parent.lifecycle`]: 1,
  phase: 1,
})

/** A document's children of one lifecycle. */
export interface ChildrenOf {
  /** The collection of the children. */
  readonly collection: Collection
  /** The field of their lifecycle that holds Phaselock's own. */
  readonly progress: string
  readonly parent: { readonly lifecycle: string; readonly id: unknown }
  /** Only those of these lists, which the index doesn't know; undefined: of all. */
  readonly lists?: readonly string[] | undefined
  /** Only those that steps with at most this fence have inserted: later holders' children don't count for this one. */
  readonly upToFence?: number | undefined
  /** Only those that steps with at least this fence have inserted: the others belong to a former document with the parent's `_id`. */
  readonly fromFence?: number | undefined
  /**
   * The lifecycle if its removals are delivered to callbacks: children that are only there for that are left out; undefined: it has no such
   * children.
   */
  readonly notifying?: NotifyingLifecycle | undefined
}

/** The number of children in a phase. */
export interface ChildrenInPhase {
  readonly phase: unknown
  /** True if these are parked, in a phase that isn't an end. */
  readonly parked: boolean
  readonly count: number
}

/** Reads by that index alone. */
const byIndex = ({ progress }: Pick<ChildrenOf, 'progress'>) => ({ hint: childIndex(progress) })

/** Matches children in none of these phases that aren't removed. */
const isIn = ({ notifying }: Pick<ChildrenOf, 'notifying'>, butIn: readonly string[]): Filter<Document> => ({
  phase: { $nin: [...butIn, ...(notifying ? [removedPhase(notifying.lifecycle)] : [])] },
})

/** Matches the children of a parent. One without a fence belongs to any holder. */
const ofParent = ({ progress, parent, lists, upToFence, fromFence }: ChildrenOf): Filter<Document> => ({
  [`${progress}.parent.id`]: { $eq: parent.id },
  [`${progress}.parent.lifecycle`]: { $eq: parent.lifecycle },
  ...(lists && { [`${progress}.parent.list`]: { $in: [...lists] } }),
  ...(upToFence !== undefined && { [`${progress}.parent.fence`]: { $not: { $gt: upToFence } } }),
  ...(fromFence !== undefined && { $nor: [{ [`${progress}.parent.fence`]: { $lt: fromFence } }] }),
})

/*
 * A parent's decisions rest on children read as a majority has them (COMMITTED): a primary that has lost the others may show ends, or removals,
 * that are undone, while the write that rests on them reaches its successor. A read that only hints that a parent should look needn't be.
 */

/**
 * Counts children by phase: an index key for each, and a document for each that hasn't ended.
 * @param ends the phases that end a child
 * @param total their number at the insert: if fewer are found, they are counted once more, because one that begins again between the two reads is
 *   found in neither
 */
export async function countChildren(of: ChildrenOf, ends: readonly string[], total = 0): Promise<ChildrenInPhase[]> {
  const first = await countOnce(of, ends)
  const sum = (found: readonly ChildrenInPhase[]) => found.reduce((all, { count }) => all + count, 0)
  if (sum(first) >= total) return first
  const again = await countOnce(of, ends)
  return sum(again) >= sum(first) ? again : first
}

async function countOnce(of: ChildrenOf, ends: readonly string[]): Promise<ChildrenInPhase[]> {
  const reading = { ...byIndex(of), ...COMMITTED }
  const counted = async (where: Filter<Document>, parked: Document): Promise<ChildrenInPhase[]> => {
    const count = { $group: { _id: { phase: '$phase', parked }, count: { $sum: 1 } } }
    const found = await of.collection.aggregate([{ $match: { ...ofParent(of), ...where } }, count], reading).toArray()
    return found.map(({ _id: { phase, parked }, count }) => ({ phase, parked, count }))
  }
  // The open ones first: one that ends in between is then counted twice, never overlooked; a waiting parent counts again.
  const open = await counted(isIn(of, ends), IS_PARKED)
  return [...open, ...(await counted({ phase: { $in: [...ends] } }, literal(false)))]
}

/**
 * True if a child hasn't ended: one key for each phase that there is. Of these, parked ones are read by their documents.
 * @param butParked leaves out those that are parked
 */
export async function hasOpenChild(
  of: ChildrenOf,
  ends: readonly string[],
  { butParked = false }: { readonly butParked?: boolean } = {},
): Promise<boolean> {
  const filter = { ...ofParent(of), ...isIn(of, ends), ...(butParked && NOT_PARKED) }
  const reading = { ...byIndex(of), projection: { _id: 0, phase: 1 }, limit: 1 }
  return (await of.collection.find(filter, reading).toArray()).length > 0
}

/** True if there is a child, even one that is only there until its removal is delivered. No index: no replica has ever run their lifecycle. */
export async function hasChild({ notifying: _, ...of }: ChildrenOf): Promise<boolean> {
  try {
    return await onIndex(of.collection, childIndex(of.progress), () => hasOpenChild(of, []))
  } catch (error) {
    if (error instanceof MissingIndex) return false
    throw error
  }
}

/** Counts the children in these phases, up to `most`: at most this many keys. */
export async function countChildrenIn(of: ChildrenOf, phases: readonly string[], most: number): Promise<number> {
  const filter = { ...ofParent(of), phase: { $in: [...phases] } }
  return await of.collection.countDocuments(filter, { ...byIndex(of), limit: most })
}

/** Reads some of the children in these phases, or those that are parked in others: for people to look at. */
export async function someChildren(of: ChildrenOf, where: Filter<Document>, limit: number): Promise<Document[]> {
  const projection = { phase: 1, lockedAt: 1, [`${of.progress}.parent`]: 1 }
  const filter = { $and: [ofParent(of), where] }
  return await readOwnFields((how) =>
    of.collection.find(filter, { projection, limit, ...byIndex(of), ...how }).toArray(),
  )
}

/**
 * Reads children of several parents that have ended in none of these phases, up to `limit`: their `parent` alone, for people to look at.
 * @throws MissingIndex if no replica has ever run their lifecycle
 */
export async function openChildrenOf(
  parents: { readonly lifecycle: string; readonly ids: readonly unknown[] },
  of: Pick<ChildrenOf, 'collection' | 'progress' | 'notifying'>,
  ends: readonly string[],
  limit: number,
): Promise<StoredParent[]> {
  const { collection, progress } = of
  const theirs = {
    [`${progress}.parent.id`]: { $in: [...parents.ids] },
    [`${progress}.parent.lifecycle`]: parents.lifecycle,
  }
  const filter = { ...theirs, ...isIn(of, ends) }
  const found = await onIndex(collection, childIndex(progress), (hint) =>
    readOwnFields((how) =>
      collection.find(filter, { projection: { [`${progress}.parent`]: 1 }, limit, hint, ...how }).toArray(),
    ),
  )
  return found.flatMap((one) => parentIn(one[progress]) ?? [])
}

/**
 * Reads the children themselves, each once.
 * @param total their number at the insert: if fewer are found, they are read once more, because one that moves between may be missed, or found
 *   twice
 */
export async function childDocuments(of: ChildrenOf, limit: number, total = 0): Promise<Document[]> {
  const found = new Map<string, Document>()
  const theirs = { ...ofParent(of), ...(of.notifying && isIn(of, [])) }
  const read = async () => {
    const reading = { ...byIndex(of), limit, ...COMMITTED, ...ownersReading(of.collection) }
    const some = await of.collection.find(theirs, reading).toArray()
    for (const one of some) found.set(idKey(one['_id']), withOwnNumbers(of.collection, of.progress, one))
  }
  await read()
  if (found.size < Math.min(total, limit)) await read()
  return [...found.values()].slice(0, limit)
}

/** Sets the owner's state for those of a document's children that aren't in these phases; a rule of theirs does the rest. */
export async function setChildrenState(of: ChildrenOf, state: string, but: readonly string[]): Promise<void> {
  const filter = { ...ofParent(of), phase: { $nin: [...but] }, state: { $ne: state } }
  // The state of an insert that is queued for a child is older.
  const update = [{ $set: { state: literal(state) } }, { $unset: pendingState(of) }]
  await updateMatching(of.collection, filter, update, byIndex(of))
}

/**
 * Removes those of a document's children that no replica holds, not even under a lease that has run out.
 * @param phases only those that are in one of them
 */
export async function removeChildren(of: ChildrenOf, by: RemovedBy, phases?: readonly string[]): Promise<void> {
  const { collection, progress, notifying } = of
  const free = { $and: [ofParent(of), WITHOUT_TOKEN, ...(phases ? [{ phase: { $in: [...phases] } }] : [])] }
  const hint = byIndex(of)
  if (!notifying) {
    await deleteMatching(collection, free, hint)
    return
  }
  const terms = termsOf(0, { progress })
  const tells = hasToNotify(terms, notifying)
  await updateMatching(collection, { ...free, ...tells }, removalUpdate(terms, notifying, by), hint)
  await deleteMatching(collection, { ...free, ...isIn(of, []), $nor: [tells] }, hint)
}

/** Counts the children in none of these phases. */
export const countChildrenBut = (of: ChildrenOf, phases: readonly string[]): Promise<number> =>
  of.collection.countDocuments({ ...ofParent(of), ...isIn(of, phases) }, { ...byIndex(of), ...COMMITTED })

/**
 * Parks those children in these phases that nobody holds, as an owner's cancel parks one document.
 * @returns their number
 * @throws MissingIndex
 */
export async function parkIdleChildren(
  of: ChildrenOf,
  terms: Terms,
  phases: readonly string[],
  why: StoppedBy,
): Promise<number> {
  const [isIdle, update] = idleParking(terms, [], why)
  const filter = { $and: [ofParent(of), { phase: { $in: [...phases] } }, isIdle] }
  return onIndex(of.collection, childIndex(of.progress), (hint) =>
    updateMatching(of.collection, filter, update, { hint }),
  )
}

/**
 * Reads the lease fields of the children in these phases that aren't parked, or have inserted children of their own.
 * @throws MissingIndex
 */
export async function openChildren(of: ChildrenOf, phases: readonly string[]): Promise<Document[]> {
  const { collection, progress } = of
  const isOpen = { $or: [NOT_PARKED, hasInserted(progress)] }
  const filter = { $and: [ofParent(of), { phase: { $in: [...phases] } }, isOpen] }
  const projection = { ...LEASE_FIELDS, [`${progress}.childrenFrom`]: 1, [`${progress}.children`]: 1 }
  return onIndex(collection, childIndex(progress), (hint) =>
    readOwnFields((how) => collection.find(filter, { projection, hint, ...how }).toArray()),
  )
}

/** Matches documents that have inserted children, or may have. */
export const hasInserted = (progress: string): Filter<Document> => ({
  $or: [{ [`${progress}.childrenFrom`]: { $exists: true } }, { [`${progress}.children`]: { $exists: true } }],
})

/** The most names of waiting documents that a document keeps: the newest. */
export const MOST_WAITERS = 100

/** Notes in a document that another waits until it is in one of these phases; once, and not if it is there already. It doesn't affect the lease. */
export async function addWaiter(
  of: Pick<ChildrenOf, 'collection' | 'progress'>,
  id: unknown,
  phases: readonly string[],
  waiter: DocumentName,
): Promise<void> {
  const { collection, progress } = of
  const waiters = `${progress}.waiters`
  const filter = {
    ...{ _id: id as never, phase: { $nin: [...phases] } },
    // A `progress` of its owner's stays as it is.
    $or: [{ [progress]: { $exists: false } }, { [progress]: { $type: 'object' } }],
    [waiters]: { $not: { $elemMatch: { lifecycle: waiter.lifecycle, id: { $eq: waiter.id } } } },
  }
  const update = { $push: { [waiters]: { $each: [waiter], $slice: -MOST_WAITERS } } }
  await collection.updateOne(filter as Filter<Document>, update as never, { hint: ID_INDEX })
}

/**
 * Inserts documents into a collection beside the one that it reads, where there is nothing with their `_id`: for a document's children, on the
 * condition that it is still held. One command, judged by the server when it runs; repeated, it changes nothing.
 */
export async function insertWhileHeld(
  holder: { readonly collection: Collection; readonly filter: Filter<Document> },
  documents: readonly Document[],
  into: string,
): Promise<void> {
  const insertion = [
    { $match: holder.filter },
    { $project: { _id: 0, documents: { $literal: documents } } },
    { $unwind: '$documents' },
    { $replaceWith: { $mergeObjects: [{ createdAt: '$$NOW' }, '$documents'] } },
    { $merge: { into, on: '_id', whenMatched: 'keepExisting', whenNotMatched: 'insert' } },
  ]
  await holder.collection.aggregate(insertion, { hint: ID_INDEX }).toArray()
}
