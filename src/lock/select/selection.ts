import type { Document } from 'mongodb'
import { idKey } from '../documents/id-key.js'

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

/** One reason to try for some documents rather than others. Each claim goes through all three methods before the next one does. */
export interface SelectionPolicy {
  reach?(phase: string, places: number): Reach
  choose(phase: string, candidates: Candidates, places: number): Choice
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
 * What the policies leave, in the places available. Each list has its least share of them, and the others take what it leaves free; when
 * places are few a draw decides, so that no list starves.
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
    const choice = policy.choose(phase, candidates, places)
    candidates = choice
    left += choice.left ?? 0
    againInMs = Math.max(againInMs, choice.againInMs ?? 0)
  }
  const { lists, retries } = candidates
  const forRetries = retries.length > 0 ? Math.min(retries.length, Math.floor(places / 8 + random())) : 0
  const given = placesByGroup(lists, places - forRetries, random)
  const chosen = lists.map(({ documents }, i) => documents.slice(0, given[i]!))
  const spares = spare > 0 ? lists.flatMap(({ documents }, i) => documents.slice(given[i]!)).slice(0, spare) : []
  const free = chosen.reduce((sum, { length }) => sum - length, places)
  return { documents: eachOnce([...chosen, retries.slice(0, free)]), spares, left, againInMs }
}

/** An array in lockedAt puts one document into several ranges. */
function eachOnce(ranges: readonly (readonly Document[])[]): readonly Document[] {
  const filled = ranges.filter(({ length }) => length > 0)
  if (filled.length <= 1) return filled[0] ?? []
  return [...new Map(filled.flat().map((document) => [idKey(document['_id']), document])).values()]
}

/** How many places each list gets: each group has its own, and divides them among its lists. */
function placesByGroup(lists: readonly CandidateList[], places: number, random: () => number): number[] {
  const groups = [...Map.groupBy(lists, ({ group }) => group)]
  if (groups.length <= 1) return placesOf(lists, places, random)
  const wholes = groups.map(([group, own]) => ({
    least: group?.least ?? 0,
    documents: own.flatMap((one) => one.documents),
  }))
  const given = placesOf(wholes, places, random)
  const byList = new Map(
    groups.flatMap(([, own], i) => {
      const inGroup = placesOf(own, given[i]!, random)
      return own.map((list, k) => [list, inGroup[k]!] as const)
    }),
  )
  return lists.map((list) => byList.get(list)!)
}

/** How many places each list gets: at least its share; what is left goes to the last lists first. */
function placesOf(lists: readonly CandidateList[], places: number, random: () => number): number[] {
  let free = places
  const give = (most: number) => {
    const given = Math.max(0, Math.min(most, free))
    free -= given
    return given
  }
  const given = lists.map(({ least, documents }) =>
    give(Math.min(documents.length, Math.floor(places * least + random()))),
  )
  for (let i = lists.length - 1; i >= 0; i -= 1) given[i]! += give(lists[i]!.documents.length - given[i]!)
  return given
}

/** Applies `of` to each list of documents. */
export const eachList = (
  { lists, retries }: Candidates,
  of: (documents: readonly Document[]) => readonly Document[],
): Candidates => ({ lists: lists.map((list) => ({ ...list, documents: of(list.documents) })), retries })
