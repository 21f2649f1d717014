import type { Collection, Document, Filter } from 'mongodb'
import { readOwnFields } from '../documents/read-each.js'
import { PARKED_AT } from '../terms/constants.js'

/**
 * Serves every question about a document's children: how many are in which phase, whether one is open. Only in collections of lifecycles that
 * declare that their documents may be children.
 */
export const childIndex = (progress: string): Readonly<Record<string, 1>> => ({
  [`${progress}.parent.id`]: 1,
  [`${progress}.parent.lifecycle`]: 1,
  phase: 1,
})

/** A document's children of one lifecycle. */
export interface ChildrenOf {
  /** Where they are. */
  readonly collection: Collection
  /** The field of their lifecycle that holds Phaselock's own. */
  readonly progress: string
  readonly parent: { readonly lifecycle: string; readonly id: unknown }
}

/** So many children in a phase. */
export interface ChildrenInPhase {
  readonly phase: unknown
  /** Of a phase that isn't an end: whether these are parked. */
  readonly parked: boolean
  readonly count: number
}

const ofParent = ({ progress, parent }: ChildrenOf): Filter<Document> => ({
  [`${progress}.parent.id`]: { $eq: parent.id },
  [`${progress}.parent.lifecycle`]: { $eq: parent.lifecycle },
})

/**
 * How many children are in which phase: an index key for each, and a document for each that hasn't ended.
 * @param ends the phases in which a child has ended
 */
export async function countChildren(of: ChildrenOf, ends: readonly string[]): Promise<ChildrenInPhase[]> {
  const { collection, progress } = of
  const hint = childIndex(progress)
  const ended = [
    { $match: { ...ofParent(of), phase: { $in: [...ends] } } },
    { $group: { _id: '$phase', count: { $sum: 1 } } },
  ]
  const isParked = { $cond: [{ $gte: ['$lockedAt', PARKED_AT] }, true, false] }
  const open = [
    { $match: { ...ofParent(of), phase: { $nin: [...ends] } } },
    { $group: { _id: { phase: '$phase', parked: isParked }, count: { $sum: 1 } } },
  ]
  // The open ones first: one that ends in between is then counted twice, never overlooked; whoever waits for it counts again.
  const stillOpen = await collection.aggregate(open, { hint }).toArray()
  const overNow = await collection.aggregate(ended, { hint }).toArray()
  return [
    ...stillOpen.map(({ _id: { phase, parked }, count }) => ({ phase, parked, count })),
    ...overNow.map(({ _id: phase, count }) => ({ phase, parked: false, count })),
  ]
}

/**
 * Whether a child hasn't ended: one key for each phase that there is. Of these, parked ones are read by their documents.
 * @param butParked leaves out those that are parked
 */
export async function hasOpenChild(
  of: ChildrenOf,
  ends: readonly string[],
  { butParked = false }: { readonly butParked?: boolean } = {},
): Promise<boolean> {
  const filter = {
    ...{ ...ofParent(of), phase: { $nin: [...ends] } },
    ...(butParked && { lockedAt: { $not: { $gte: PARKED_AT } } }),
  }
  const found = of.collection.find(filter, {
    hint: childIndex(of.progress),
    projection: { _id: 0, phase: 1 },
    limit: 1,
  })
  return (await found.toArray()).length > 0
}

/** How many children are in these phases, counted up to `most`: at most so many keys. */
export async function countChildrenIn(of: ChildrenOf, phases: readonly string[], most: number): Promise<number> {
  const filter = { ...ofParent(of), phase: { $in: [...phases] } }
  return await of.collection.countDocuments(filter, { hint: childIndex(of.progress), limit: most })
}

/** Some of the children in these phases, or those that are parked in others: for people to look at. */
export async function someChildren(of: ChildrenOf, where: Filter<Document>, limit: number): Promise<Document[]> {
  const projection = { phase: 1, [`${of.progress}.parent`]: 1 }
  const filter = { $and: [ofParent(of), where] }
  return await readOwnFields((how) =>
    of.collection.find(filter, { ...{ projection, limit, hint: childIndex(of.progress) }, ...how }).toArray(),
  )
}

/**
 * The stage that inserts documents into a collection beside the one that it reads, where there is nothing with their `_id`: for a document's
 * children, on the condition that it is still held. One command, judged by the server when it runs; repeated, it changes nothing.
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
    { $replaceWith: '$documents' },
    { $merge: { into, on: '_id', whenMatched: 'keepExisting', whenNotMatched: 'insert' } },
  ]
  await holder.collection.aggregate(insertion, { hint: { _id: 1 } }).toArray()
}
