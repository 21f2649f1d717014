import type { Db, Document, Filter } from 'mongodb'
import { PARKED } from '../../lock/index.js'
import { type LifecycleModel, strayPhases } from '../../phases/index.js'

/** The troubles that a list can show of the documents that match the rest: documents with any of these. */
export const TROUBLES = ['parked', 'bugs', 'failing', 'waiting'] as const
export type Trouble = (typeof TROUBLES)[number]

const NOT_PARKED: Filter<Document> = { $nor: [PARKED] }
/** The filters for documents with a trouble. */
const inTrouble: Readonly<Record<Trouble, (progress: string) => Filter<Document>>> = {
  parked: () => PARKED,
  bugs: (progress) => ({ [`${progress}.error.bugs`]: { $gte: 1 }, ...PARKED }),
  failing: (progress) => ({ [`${progress}.error`]: { $type: 'object' }, ...NOT_PARKED }),
  waiting: (progress) => ({ [`${progress}.waitingFor`]: { $type: 'string' }, ...NOT_PARKED }),
}

/** How documents stand, as lists and operations ask for it. */
export interface Standing extends Readonly<Partial<Record<Trouble, boolean | undefined>>> {
  /** Those that wait for what their handler calls so. */
  readonly on?: string | undefined
}

/** The filter for how documents stand, in any phase; undefined: nothing is asked of that. */
export function standing(
  { settings: { progress } }: LifecycleModel,
  { on, ...troubles }: Standing,
): Filter<Document> | undefined {
  const asked = TROUBLES.filter((trouble) => troubles[trouble])
  if (asked.length === 0 && on === undefined) return undefined
  return {
    ...leaseRange({ on, ...troubles }),
    ...(on !== undefined && { [`${progress}.waitingOn`]: { $eq: on }, ...NOT_PARKED }),
    ...(asked.length > 0 && { $or: asked.map((trouble) => inTrouble[trouble](progress)) }),
  }
}

/**
 * The part of the claim index in which documents that stand so are: each of them is parked, sleeps or is held. Those in no trouble, most of a
 * collection, are mostly outside of it.
 */
export function leaseRange({ on, ...troubles }: Standing): Filter<Document> {
  const asked = TROUBLES.filter((trouble) => troubles[trouble])
  const areParked = on === undefined && asked.every((trouble) => trouble === 'parked' || trouble === 'bugs')
  return areParked ? PARKED : { lockedAt: { $gt: new Date(0) } }
}

/** The documents whose owner wants a state, as a filter. */
export const wantsState = (state: string): Filter<Document> => ({ state: { $eq: state, $not: { $type: 'array' } } })

/** In which phases a lifecycle's documents are: its own, and those that this version lacks. */
export const phasesMeant = async (db: Db, model: LifecycleModel): Promise<string[]> => [
  ...model.phases.keys(),
  ...(await strayPhases(db, model)),
]
