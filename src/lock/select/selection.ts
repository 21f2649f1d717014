import type { Document } from 'mongodb'
import { idKey } from '../documents/values.js'
import type { PhaseMemory } from './phase-memory.js'
import { firstOf, inTurns, listed, type NextDocument, shared } from './places.js'

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
