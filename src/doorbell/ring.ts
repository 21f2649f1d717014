import { BSON, type Document } from 'mongodb'
import { idKey } from '../lock/index.js'

/** A hint that something may be due. A replica that hears it looks, and the database has the last word. */
export interface Ring {
  /** The lifecycles with something to look for; empty: all of them. */
  readonly lifecycles: readonly string[]
  /** Working phases with due documents, which can be claimed immediately; absent: look at everything. */
  readonly phases?: readonly string[] | undefined
  /** The `_id`s of all that is due in the one phase named, so that it can be claimed without a look. At most eight numbers, ObjectIds or strings of 64 characters. */
  readonly ids?: readonly unknown[] | undefined
}

/** A ring as it is stored in `phaselock.doorbell`. A writer in any language needs only `{ lifecycles: ['order'] }`. */
export interface RingEntry extends Ring {
  /** The ringer: a replica's identity, or an owner's host and process. */
  readonly by?: string
  /** The time by the ringer's clock, for people. */
  readonly at?: Date
}

/** Calls for a look at everything: rings that no listener heard are unknown. */
export const EVERYTHING: Ring = { lifecycles: [] }

/** The limit of named phases: beyond it one look is cheaper. */
const MOST_PHASES = 20
/**
 * The limits of named `_id`s. The collection is small: within them a ring takes at most 700 bytes, or 1,700 in a script of three
 * bytes per letter.
 */
const MOST_IDS = 8
const LONGEST_ID = 64

/**
 * A ring for some phases; for none of them: look at everything.
 * @param ids of all that is due in these phases, if known. The ring names them if it is one phase of one lifecycle, and they are
 *   few and plain: `_id`s written by hand might hold operators
 */
export function ringFor(lifecycles: readonly string[], phases: readonly string[], ids: unknown): Ring {
  if (phases.length === 0) return { lifecycles }
  const isOne = lifecycles.length === 1 && phases.length === 1
  return isOne && canBeNamed(ids) ? { lifecycles, phases, ids } : { lifecycles, phases }
}

const canBeNamed = (ids: unknown): ids is readonly unknown[] =>
  Array.isArray(ids) && ids.length > 0 && ids.length <= MOST_IDS && ids.every(isPlain)

const isPlain = (id: unknown): boolean =>
  typeof id === 'string' ? id.length <= LONGEST_ID : typeof id === 'number' || id instanceof BSON.ObjectId

/** Merges two rings into one. It calls for a look if either does. */
export function mergeRings(one: Ring, other: Ring): Ring {
  const everything = one.lifecycles.length === 0 || other.lifecycles.length === 0
  const lifecycles = everything ? [] : [...new Set([...one.lifecycles, ...other.lifecycles])]
  if (everything || !one.phases || !other.phases) return { lifecycles }
  const phases = [...new Set([...one.phases, ...other.phases])]
  if (phases.length > MOST_PHASES) return { lifecycles }
  const ids = one.ids && other.ids && [...new Map([...one.ids, ...other.ids].map((id) => [idKey(id), id])).values()]
  return ringFor(lifecycles, phases, ids)
}

/**
 * Merges the stored entries that concern a listener to these lifecycles into one ring; undefined if there are none. Entries may
 * have been written by hand: anything but a string, alone or in a list, is ignored.
 */
export function heardIn(entries: readonly Document[], names: readonly string[], self: string): Ring | undefined {
  let heard: Ring | undefined
  for (const entry of entries) {
    if (entry['by'] === self) continue
    const lifecycles = textsOf(entry['lifecycles']).filter((name) => names.includes(name))
    if (lifecycles.length === 0) continue
    const ring = ringFor(lifecycles, textsOf(entry['phases']), entry['ids'])
    heard = heard ? mergeRings(heard, ring) : ring
  }
  return heard
}

function textsOf(value: unknown): string[] {
  const list = Array.isArray(value) ? value : [value]
  return list.filter((one): one is string => typeof one === 'string')
}
