import type { Document } from 'mongodb'
import { idKey } from '../documents/values.js'
import type { PhaseMemory } from './phase-memory.js'

/*
 * The choice of due documents that a replica tries for: look -> choose -> claim -> learn. A look reads the number of candidates that the policies
 * ask for. Each policy in turn removes or reorders those that the policies before it have left. The claim tries for the chosen ones, and each
 * policy learns from the result. Policies only choose: the claim's conditional update decides who holds a document, so none of them can do harm.
 */

/** Due documents of one kind, the longest untouched first. */
export interface CandidateList {
  /** The least share of the places (of its group's, where it is in one) that it gets on average, if it has enough documents. */
  readonly least: number
  readonly documents: readonly Document[]
  /** The field whose values take turns in it. Default: none, the longest untouched is the first. */
  readonly turnsBy?: string | undefined
  /** Lists of one group share the places that it gets. Default: all are in one. */
  readonly group?: CandidateGroup | undefined
}

/** Lists of due documents that share places. */
export interface CandidateGroup {
  /** The least share of the places that it gets on average, if it has enough documents. */
  readonly least: number
}

export interface Candidates {
  readonly lists: readonly CandidateList[]
  /** To be tried in an eighth of the places, and in any places that the others leave over. */
  readonly retries: readonly Document[]
}

/** A policy's choice of the candidates. */
export interface Choice extends Candidates {
  /** The number that it leaves to other replicas for now. */
  readonly left?: number
  /** The time after which it is worth looking for those that are still there. */
  readonly againInMs?: number
}

/** The extent of a look that a policy needs. */
export interface Reach {
  /** The most places. */
  readonly most?: number
  /** The number of candidates for each place. */
  readonly times?: number
  /** The number of additional ones, to be tried in place of those that refuse. */
  readonly spare?: number
  /** The number of further ones that will be passed over. */
  readonly passed?: number
  /** `_id`s that aren't to be read at all. */
  readonly without?: readonly unknown[]
  /** Reads from the end, to find the documents behind any number of useless ones immediately. */
  readonly newestFirst?: boolean
}

/** The outcome for one claim's candidates. */
export interface Attempt {
  readonly tried: readonly unknown[]
  /** Another replica got them, or they were no longer due. */
  readonly missed: readonly unknown[]
  readonly hasRefused: boolean
}

/** One reason to try for some documents rather than others. Each claim goes through all of its methods before the next one does. */
export interface SelectionPolicy {
  reach?(memory: PhaseMemory, places: number): Reach
  /** Removes or reorders documents, each for itself: a decision that depends on those that get places is for `admits`. */
  choose?(memory: PhaseMemory, candidates: Candidates, places: number): Choice
  /**
   * True if a document may have a place beside those that have one. Called in the order of the places; a document that isn't admitted once isn't
   * asked about again in this claim.
   */
  admits?(document: Document): boolean
  /** All policies have admitted it: it has a place. */
  placed?(document: Document): void
  learn?(memory: PhaseMemory, attempt: Attempt): void
}

/** The most that one look reads, whatever the policies ask for: 2,000 take the server 12 ms, 500 take 8 (measured). */
const MOST_READ = 2_000

/** The extent of the look that all policies need. */
export interface Extent extends Required<Omit<Reach, 'most' | 'times'>> {
  readonly places: number
  /** Candidates besides the spare ones and those that are passed over. */
  readonly wanted: number
}

export function extentFor(policies: readonly SelectionPolicy[], memory: PhaseMemory, limit: number): Extent {
  const reaches = policies.map((policy) => policy.reach?.(memory, limit) ?? {})
  const sum = (of: (reach: Reach) => number | undefined) => reaches.reduce((all, reach) => all + (of(reach) ?? 0), 0)
  const places = Math.min(limit, ...reaches.map(({ most }) => most ?? limit))
  const times = Math.max(1, ...reaches.map((reach) => reach.times ?? 1))
  return {
    places,
    wanted: Math.max(places, Math.min(MOST_READ, places * times)),
    spare: sum(({ spare }) => spare),
    passed: sum(({ passed }) => passed),
    without: reaches.flatMap(({ without }) => without ?? []),
    newestFirst: reaches.some(({ newestFirst }) => newestFirst),
  }
}

export interface Chosen {
  readonly documents: readonly Document[]
  /** More of them, to take the places of those in `documents` that refuse. */
  readonly spares: readonly Document[]
  readonly left: number
  readonly againInMs: number
}

/**
 * Chooses the documents that the policies leave, in the order of the available places. Each list has its least share of them, and the last ones
 * take the places that others leave free; when places are few a draw decides, so that no list starves.
 */
export function choose(
  policies: readonly SelectionPolicy[],
  memory: PhaseMemory,
  found: readonly CandidateList[],
  { places, spare }: Pick<Extent, 'places' | 'spare'>,
  random: () => number,
): Chosen {
  let candidates: Candidates = { lists: found, retries: [] }
  let left = 0
  let againInMs = 0
  for (const policy of policies) {
    const choice: Choice = policy.choose?.(memory, candidates, places) ?? candidates
    candidates = choice
    left += choice.left ?? 0
    againInMs = Math.max(againInMs, choice.againInMs ?? 0)
  }
  const first = firstOf(inOrder(candidates, placing(policies), random), places + spare)
  return { documents: first.slice(0, places), spares: first.slice(places), left, againInMs }
}

/**
 * Gives a document a place if all policies admit it; only one, because it may be in several lists: of a rank and of its value, or with an array
 * in lockedAt.
 */
function placing(policies: readonly SelectionPolicy[]): (document: Document) => boolean {
  const placed = new Set<string>()
  return (document) => {
    const key = idKey(document['_id'])
    if (placed.has(key) || !policies.every((policy) => policy.admits?.(document) ?? true)) return false
    placed.add(key)
    for (const policy of policies) policy.placed?.(document)
    return true
  }
}

/** Retries have a part of the places; each group has its part of the others, and divides it among its lists. */
function inOrder(
  { lists, retries }: Candidates,
  isPlaced: (document: Document) => boolean,
  random: () => number,
): NextDocument {
  const groups = [...Map.groupBy(lists, ({ group }) => group)].map(([group, own]) => {
    const sharers = own.map(({ least, documents, turnsBy }) => ({
      least,
      next: turnsBy === undefined ? listed(documents, isPlaced) : inTurns(documents, turnsBy, isPlaced),
    }))
    return { least: group?.least ?? 0, next: shared(sharers, random) }
  })
  const again = { least: 1 / 8, next: listed(retries, isPlaced) }
  return shared([again, { least: 0, next: shared(groups, random) }], random)
}

/** Applies `of` to each list of documents. */
export const eachList = (
  { lists, retries }: Candidates,
  of: (documents: readonly Document[]) => readonly Document[],
): Candidates => ({ lists: lists.map((list) => ({ ...list, documents: of(list.documents) })), retries })

/** Gives one document after the other; undefined: there are no more. */
type NextDocument = () => Document | undefined

/** Gives documents in their order, without those that can't have a place when it is their turn. */
function listed(documents: readonly Document[], isPlaced: (document: Document) => boolean): NextDocument {
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
function inTurns(
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
interface Sharer {
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
function shared(sharers: readonly Sharer[], random: () => number): NextDocument {
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
function firstOf(next: NextDocument, most: number): Document[] {
  const first: Document[] = []
  while (first.length < most) {
    const document = next()
    if (!document) break
    first.push(document)
  }
  return first
}
