import type { Document } from 'mongodb'

/** That something may be due. Only a hint: whoever hears it looks, and the database says what there is. */
export interface Ring {
  /** The lifecycles with something to look for; empty: all of them. */
  readonly lifecycles: readonly string[]
  /** Working phases in which something is due, so that these can be claimed at once; absent: look at everything. */
  readonly phases?: readonly string[] | undefined
}

/** A ring as it is stored in `phaselock.doorbell`. A writer in any language needs only `{ lifecycles: ['order'] }`. */
export interface RingEntry {
  readonly lifecycles: readonly string[]
  readonly phases?: readonly string[]
  /** Who rang: a replica's identity, or an owner's host and process. */
  readonly by?: string
  /** When, by the ringer's clock: for people. */
  readonly at?: Date
}

/** Look at everything: what was rung while nobody listened is not known. */
export const EVERYTHING: Ring = { lifecycles: [] }

/** More than these are not worth naming: one look is cheaper. */
const MOST_PHASES = 20

/** One ring instead of two: it calls for a look where one of them does. */
export function mergeRings(one: Ring, other: Ring): Ring {
  const everything = one.lifecycles.length === 0 || other.lifecycles.length === 0
  const lifecycles = everything ? [] : [...new Set([...one.lifecycles, ...other.lifecycles])]
  if (everything || !one.phases || !other.phases) return { lifecycles }
  const phases = [...new Set([...one.phases, ...other.phases])]
  return phases.length > MOST_PHASES ? { lifecycles } : { lifecycles, phases }
}

/**
 * What of the stored entries concerns a listener to these lifecycles, as one ring; undefined when nothing does. Entries may
 * have been written by hand: what is no list of texts counts as absent.
 */
export function heardIn(entries: readonly Document[], names: readonly string[], self: string): Ring | undefined {
  let heard: Ring | undefined
  for (const entry of entries) {
    if (entry['by'] === self) continue
    const lifecycles = textsOf(entry['lifecycles']).filter((name) => names.includes(name))
    if (lifecycles.length === 0) continue
    const phases = textsOf(entry['phases'])
    const ring: Ring = phases.length > 0 ? { lifecycles, phases } : { lifecycles }
    heard = heard ? mergeRings(heard, ring) : ring
  }
  return heard
}

function textsOf(value: unknown): string[] {
  const list = Array.isArray(value) ? value : [value]
  return list.filter((one): one is string => typeof one === 'string')
}
