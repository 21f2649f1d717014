import type { Document } from 'mongodb'
import { idKey } from '../documents/id-key.js'

/*
 * Which of the due documents a replica tries for: look -> choose -> claim -> learn. A look brings candidates as far as the policies reach,
 * each policy in turn takes away or reorders what the ones before it have left, the claim tries for what is chosen, and each policy learns
 * what became of it. Policies only choose: who holds a document is decided by the claim's conditional update, so none of them can do harm.
 */

/** Due documents of one kind, the longest untouched first. */
export interface CandidateList {
  /** The part of the places that it gets at least, on average, as far as it has documents. */
  readonly least: number
  readonly documents: readonly Document[]
}

export interface Candidates {
  readonly lists: readonly CandidateList[]
  /** To be tried in an eighth of the places while others want them, and in what is left over. */
  readonly retries: readonly Document[]
}

/** What a policy makes of candidates. */
export interface Choice extends Candidates {
  /** How many it leaves to other replicas for now. */
  readonly left?: number
  /** After so long it is worth looking whether they still lie there. */
  readonly againInMs?: number
}

/** How far a look has to go for a policy. */
export interface Reach {
  /** So many places at most. */
  readonly most?: number
  /** So many candidates for each place. */
  readonly times?: number
  /** So many more, to be tried in the places of those that refuse. */
  readonly spare?: number
  /** And so many more that will be passed over. */
  readonly passed?: number
  /** `_id`s that aren't to be read at all. */
  readonly without?: readonly unknown[]
  /** From the end: what stands behind any number of documents that are of no use is found at once. */
  readonly newestFirst?: boolean
}

/** What became of the candidates of one claim. */
export interface Attempt {
  readonly tried: readonly unknown[]
  /** Somebody else got them, or they were no longer due. */
  readonly missed: readonly unknown[]
  readonly hasRefused: boolean
}

/** One reason to try for some documents rather than for others. One claim at a time goes through all three. */
export interface SelectionPolicy {
  reach?(phase: string, places: number): Reach
  choose(phase: string, candidates: Candidates, places: number): Choice
  learn?(phase: string, attempt: Attempt): void
}

/** More are not read at once, whatever is wished for: 2,000 take the server 12 ms, 500 take 8 (measured). */
const MOST_READ = 2_000

/** How far the look has to go for all of them. */
export interface Extent extends Required<Omit<Reach, 'most' | 'times'>> {
  readonly places: number
  /** Candidates beside the spare ones and those that are passed over. */
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
  /** More of them, for the places of those in `documents` that refuse. */
  readonly spares: readonly Document[]
  readonly left: number
  readonly againInMs: number
}

/**
 * What the policies leave, in as many places as there are. Each list has its least part of them, what one leaves free the others take; with
 * few places a draw decides, so that no list starves.
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
  const given = placesOf(lists, places - forRetries, random)
  const chosen = lists.flatMap(({ documents }, i) => documents.slice(0, given[i]!))
  const spares = spare > 0 ? lists.flatMap(({ documents }, i) => documents.slice(given[i]!)).slice(0, spare) : []
  const documents = eachOnce([...chosen, ...retries.slice(0, places - chosen.length)])
  return { documents, spares, left, againInMs }
}

/** An array in lockedAt puts one document into several ranges. */
const eachOnce = (documents: readonly Document[]): Document[] => [
  ...new Map(documents.map((document) => [idKey(document['_id']), document])).values(),
]

/** How many places each list gets: at least its part of them; what is left goes to the last ones first. */
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

/** Each list of documents by itself. */
export const eachList = (
  { lists, retries }: Candidates,
  of: (documents: readonly Document[]) => readonly Document[],
): Candidates => ({ lists: lists.map((list) => ({ ...list, documents: of(list.documents) })), retries })
