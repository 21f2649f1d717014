import type { Document } from 'mongodb'
import { idKey } from '../documents/values.js'

/** Gives one document after the other; undefined: there are no more. */
export type NextDocument = () => Document | undefined

/** Gives documents in their order, without those that can't have a place when it is their turn. */
export function listed(documents: readonly Document[], isPlaced: (document: Document) => boolean): NextDocument {
  let i = 0
  return () => {
    while (i < documents.length) {
      const document = documents[i]!
      i += 1
      if (isPlaced(document)) return document
    }
    return undefined
  }
}

/** The same, but one of each value of a field after the other: round robin among the values with documents that can still have a place. */
export function inTurns(
  documents: readonly Document[],
  field: string,
  isPlaced: (document: Document) => boolean,
): NextDocument {
  const byValue = Map.groupBy(documents, (document) => idKey(document[field] ?? null))
  const open = [...byValue.values()].map((own) => listed(own, isPlaced))
  return () => {
    for (let next = open.shift(); next; next = open.shift()) {
      const document = next()
      if (!document) continue
      open.push(next)
      return document
    }
    return undefined
  }
}

/** One of those that share places. */
export interface Sharer {
  /** The least share of the places that it gets on average while it has documents. All together: 1 at most. */
  readonly least: number
  readonly next: NextDocument
}

/**
 * Gives places one by one. The draw for each is a point of the randomly shifted van der Corput sequence: a place is each sharer's with exactly
 * the probability of its share, and any first places are divided with the least deviation (of each 16 in a row, one sixteenth is one). So the
 * shares hold for each part of the places, also for the few that suit a limited document. The last sharer that has documents gets the places that
 * others don't need.
 */
export function shared(sharers: readonly Sharer[], random: () => number): NextDocument {
  const open = [...sharers]
  const shift = random()
  let place = 0
  const drawn = (): number => {
    let point = (shift + reversedBits(place)) % 1
    place += 1
    for (const [i, { least }] of sharers.entries()) {
      point -= least
      if (point < 0) return open.indexOf(sharers[i]!)
    }
    return -1
  }
  return () => {
    for (let i = drawn(); open.length > 0; i = -1) {
      const sharer = open.at(i)!
      const document = sharer.next()
      if (document) return document
      open.splice(open.indexOf(sharer), 1)
    }
    return undefined
  }
}

/** The bits of a whole number mirrored at the point: 1 -> 0.1, 2 -> 0.01, 3 -> 0.11, each in binary. */
function reversedBits(number: number): number {
  let reversed = 0
  for (let [left, bit] = [number, 0.5]; left > 0; left >>= 1, bit /= 2) reversed += (left & 1) * bit
  return reversed
}

/** The first documents, no more than `most`. */
export function firstOf(next: NextDocument, most: number): Document[] {
  const first: Document[] = []
  while (first.length < most) {
    const document = next()
    if (!document) break
    first.push(document)
  }
  return first
}
