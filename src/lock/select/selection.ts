import type { Document } from 'mongodb'
import { idKey } from '../documents/id-key.js'
import { firstOf, inTurns, listed, type NextDocument, shared } from './places.js'

/*
 * Which due documents a replica tries for: look -> choose -> claim -> learn. A look reads as many candidates as the policies ask for, each
 * policy in turn removes or reorders what those before it have left, the claim tries for the chosen ones, and each policy learns how that
 * went. Policies only choose: the claim's conditional update decides who holds a document, so none of them can do harm.
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
  /** To be tried in an eighth of the places, and in whatever places the others leave over. */
  readonly retries: readonly Document[]
}

/** A policy's choice of the candidates. */
export interface Choice extends Candidates {
  /** How many it leaves to other replicas for now. */
  readonly left?: number
  /** After how long it is worth looking whether they are still there. */
  readonly againInMs?: number
}

/** How far a look has to read for a policy. */
export interface Reach {
  /** The most places. */
  readonly most?: number
  /** How many candidates for each place. */
  readonly times?: number
  /** How many more, to be tried in place of those that refuse. */
  readonly spare?: number
  /** And how many more that will be passed over. */
  readonly passed?: number
  /** `_id`s that aren't to be read at all. */
  readonly without?: readonly unknown[]
  /** Reads from the end, to find at once what is behind any number of useless documents. */
  readonly newestFirst?: boolean
}

/** What became of one claim's candidates. */
export interface Attempt {
  readonly tried: readonly unknown[]
  /** Somebody else got them, or they were no longer due. */
  readonly missed: readonly unknown[]
  readonly hasRefused: boolean
}

/** One reason to try for some documents rather than others. Each claim goes through all of its methods before the next one does. */
export interface SelectionPolicy {
  reach?(phase: string, places: number): Reach
  /** Removes or reorders documents, each for itself: what depends on those that get places is for `admits`. */
  choose?(phase: string, candidates: Candidates, places: number): Choice
  /**
   * Whether a document may have a place beside those that have one. Asked in the order in which places are given; what isn't admitted once
   * isn't asked about again in this claim.
   */
  admits?(document: Document): boolean
  /** All policies have admitted it: it has a place. */
  placed?(document: Document): void
  learn?(phase: string, attempt: Attempt): void
}

/** The most that is read at once, whatever the policies ask for: 2,000 take the server 12 ms, 500 take 8 (measured). */
const MOST_READ = 2_000

/** How far the look has to read for all policies. */
export interface Extent extends Required<Omit<Reach, 'most' | 'times'>> {
  readonly places: number
  /** Candidates besides the spare ones and those that are passed over. */
  readonly wanted: number
}

export function extentFor(policies: readonly SelectionPolicy[], phase: string, limit: number): Extent {
  const reaches = policies.map((policy) => policy.reach?.(phase, limit) ?? {})
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
 * What the policies leave, in the order in which it gets the places available. Each list has its least share of them, and the last ones take
 * what others leave free; when places are few a draw decides, so that no list starves.
 */
export function choose(
  policies: readonly SelectionPolicy[],
  phase: string,
  found: readonly CandidateList[],
  { places, spare }: Pick<Extent, 'places' | 'spare'>,
  random: () => number,
): Chosen {
  let candidates: Candidates = { lists: found, retries: [] }
  let left = 0
  let againInMs = 0
  for (const policy of policies) {
    const choice: Choice = policy.choose?.(phase, candidates, places) ?? candidates
    candidates = choice
    left += choice.left ?? 0
    againInMs = Math.max(againInMs, choice.againInMs ?? 0)
  }
  const first = firstOf(inOrder(candidates, placing(policies), random), places + spare)
  return { documents: first.slice(0, places), spares: first.slice(places), left, againInMs }
}

/** Gives a document a place if all policies admit it; only one, because it may be in several lists: of a rank and of its value, or with an array in lockedAt. */
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
