import type { Clock } from '../../time/index.js'
import { idKey } from '../documents/values.js'
import type { PhaseMemory } from './phase-memory.js'
import { type Attempt, type Candidates, type Choice, eachList, type Reach, type SelectionPolicy } from './selection.js'

/** A lifecycle's live replicas, as known to one of them; of one phase, those that take its documents now. */
export interface Membership {
  /** This replica's name. */
  readonly self: string
  /** All of them, including this one, in any order. One: there is no other to share with. */
  readonly replicas: readonly string[]
}

/** Another replica's share is left to it for half a millisecond per document, within these bounds. */
const LEAST_PATIENCE_MS = 30
const MOST_PATIENCE_MS = 250
/** Each time the other one turns out to be quicker the patience doubles, up to this factor. */
const MOST_DOUBLED = 8
/** The number taken over at first; twice that each time that goes well: 500 after a third of a second. */
const FIRST_TAKEN_OVER = 16
const MOST_TAKEN_OVER = 500
/**
 * The least number of candidates that are read for each replica: with few places, such as those of a limit, the first ones soon all belong to
 * another.
 */
const LEAST_READ = 16
/** If its own share fills at least this part of its places, a replica leaves the others theirs, until any replica may take those. */
const ENOUGH = 0.25
/** The ages at which a document that is still there is open to others: first to the replica that is next in line for it, then to all. */
const NEXT_OWNER_AFTER_MS = 1_500
const ANY_REPLICA_AFTER_MS = 2_500

/**
 * Divides due documents among the replicas of a lifecycle, so that they don't pick the same ones. Each reads the number of candidates that all of
 * them take, and tries for those that are its own by `_id`. They needn't talk to each other: each knows the list of live replicas from its last
 * look. An `_id` belongs to the replica that hashes highest with it, so two replicas whose lists differ by one disagree only about that one's
 * share.
 *
 * Another replica's document is also taken if it is still there a moment later (that replica may be full, slow or dead) and nearly all else is
 * done: the last ones first, because the other replica begins with the oldest.
 *
 * Invariant: a share is a preference that ends. Documents that this replica has seen due for 2.5 s queue like its own, in the order of its list,
 * however much it has of its own and whatever the other one does (docs/lock-protocol.md, point 2: the bound).
 *
 * Share of the candidates lost, 12,000 documents, 2 / 4 replicas: 20 / 31 % when all take the oldest, 1 / 2 % with this (bench/README.md has the
 * designs in between).
 */
export class WorkSplit implements SelectionPolicy {
  /** Keys of other replicas' documents that the current claim takes over because there is room. */
  private late: ReadonlySet<string> = NONE
  private doubled = 1
  private takeOver = FIRST_TAKEN_OVER
  private listed: readonly string[] = []
  private seeds: readonly number[] = []

  constructor(
    private readonly membership: (phase?: string) => Membership,
    private readonly clock: Clock,
  ) {}

  /** The number of replicas that share the lifecycle. */
  get of(): number {
    return this.sharersOf()
  }

  /** Asks for the number of candidates that all of them take, and some more if that is few. */
  reach({ phase }: PhaseMemory, places: number): Reach {
    const sharers = this.sharersOf(phase)
    return { times: sharers === 1 ? 1 : sharers * Math.max(1, LEAST_READ / places) }
  }

  private sharersOf(phase?: string): number {
    return Math.max(1, this.membership(phase).replicas.length)
  }

  choose(memory: PhaseMemory, candidates: Candidates, places: number): Choice {
    const { phase } = memory
    this.late = NONE
    if (this.sharersOf(phase) === 1) {
      memory.isAlone()
      return candidates
    }
    const now = this.clock.monotonicMs()
    const seen = memory.seenAt(now)
    const others = new Map<string, number>()
    const own = eachList(candidates, (documents) =>
      documents.filter((document) => {
        const key = idKey(document['_id'])
        const rank = this.rankOf(key, phase)
        if (rank === 0) return true
        const since = seen.see(key, document['fence'], now)
        if (since <= now - (rank === 1 ? NEXT_OWNER_AFTER_MS : ANY_REPLICA_AFTER_MS)) return true
        others.set(key, since)
        return false
      }),
    )
    seen.looked()
    if (others.size === 0) return own
    const againInMs = this.patienceMs(others.size)
    const hasEnough = own.lists.reduce((sum, { documents }) => sum + documents.length, 0) >= places * ENOUGH
    if (hasEnough) return { ...own, left: others.size, againInMs }
    const isLate = ([, since]: [string, number]) => since <= now - againInMs
    const late = new Set([...others].filter(isLate).map(([key]) => key))
    const taken = new Set([...late].slice(-this.takeOver))
    this.late = taken
    const lists = candidates.lists.map((list, i) => {
      const takenOver = list.documents.filter((document) => taken.has(idKey(document['_id']))).reverse()
      return { ...list, documents: [...own.lists[i]!.documents, ...takenOver] }
    })
    return { ...own, lists, left: others.size - taken.size, againInMs: late.size > taken.size ? 0 : againInMs }
  }

  learn(_memory: PhaseMemory, { tried, missed }: Attempt): void {
    const lateOf = (ids: readonly unknown[]) => ids.filter((id) => this.late.has(idKey(id))).length
    if (this.late.size > 0) this.tookOver(lateOf(tried), lateOf(missed))
  }

  /** Learns the number of documents that it tried to take over, and the number of those that the others had taken in the meantime. */
  tookOver(tried: number, lost: number): void {
    const wentWell = lost <= tried / 20
    this.doubled = wentWell ? Math.max(1, this.doubled / 2) : Math.min(MOST_DOUBLED, this.doubled * 2)
    this.takeOver = wentWell ? Math.min(MOST_TAKEN_OVER, this.takeOver * 2) : FIRST_TAKEN_OVER
  }

  /**
   * Leaves documents, said to be due, to the replicas whose share they are: their time runs from now on.
   * @returns the milliseconds after which it is worth looking for those that are still there
   */
  leave(memory: PhaseMemory, keys: readonly string[]): number {
    const now = this.clock.monotonicMs()
    const seen = memory.seenAt(now)
    for (const key of keys) seen.announce(key, now)
    return this.patienceMs(keys.length)
  }

  /** Notes another replica's document whose time is up already: if it is due now, it is taken like one that has been there for long. */
  waitedFor(memory: PhaseMemory, key: string): void {
    memory.seenAt(this.clock.monotonicMs()).announce(key, Number.NEGATIVE_INFINITY)
  }

  private patienceMs(documents: number): number {
    return Math.min(MOST_PATIENCE_MS, Math.max(LEAST_PATIENCE_MS, documents / 2)) * this.doubled
  }

  /** True if a document is in this replica's share, by the key of its `_id`; without its phase: if all live replicas take it. */
  isOwn(key: string, phase?: string): boolean {
    return this.rankOf(key, phase) === 0
  }

  /** Ranks a document. 0: it is in this replica's share. 1: it would be if one other replica weren't there. 2: neither. */
  private rankOf(key: string, phase?: string): number {
    const { self, replicas } = this.membership(phase)
    if (this.listed !== replicas) {
      this.listed = replicas
      this.seeds = [self, ...replicas.filter((name) => name !== self)].map(hashOf)
    }
    const hash = hashOf(key)
    const own = mixed(hash ^ this.seeds[0]!)
    let rank = 0
    for (let i = 1; i < this.seeds.length && rank < 2; i += 1) if (mixed(hash ^ this.seeds[i]!) > own) rank += 1
    return rank
  }
}

/** Losing more than this share of the candidates is no accident. */
const MUCH = 0.05
const SPREAD = 4

/**
 * A policy against contention. A replica may compete with others that it doesn't know of (of an older version, or ticked by hand). It notices
 * them only by its losses: two that pick alike lose half of their candidates. So after a large loss the next pick starts at a random place among
 * four times the number of candidates.
 */
export class Contention implements SelectionPolicy {
  /** @param isShared true if others are known and are left their share: then picks aren't spread */
  constructor(
    private readonly isShared: () => boolean,
    private readonly random: () => number,
  ) {}

  reach(memory: PhaseMemory) {
    return this.isSpread(memory) ? { times: SPREAD } : {}
  }

  choose(memory: PhaseMemory, candidates: Candidates): Candidates {
    if (!this.isSpread(memory)) return candidates
    return eachList(candidates, (documents) => {
      const start = Math.floor(this.random() * documents.length)
      return [...documents.slice(start), ...documents.slice(0, start)]
    })
  }

  learn(memory: PhaseMemory, { tried, missed }: Attempt): void {
    memory.isContended = tried.length > 1 && missed.length > tried.length * MUCH
  }

  private isSpread({ isContended }: PhaseMemory): boolean {
    return isContended && !this.isShared()
  }
}

const NONE: ReadonlySet<string> = new Set()

/** FNV-1a, 32 bits: the same in all replicas. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return hash >>> 0
}

/** Spreads a difference in one bit over all of them (the finalizer of MurmurHash3). */
function mixed(value: number): number {
  let hash = Math.imul(value ^ (value >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}
