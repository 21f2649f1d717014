import { Long } from 'mongodb'

/** A phase whose claims are in time again with this many documents is as fast as any. */
const FAST_ENOUGH = 1_000
/** The number of claims in time after which the next one may be twice as large. */
const IN_TIME = 8

/** What a replica has learnt from its claims of one phase. The queue of the phase owns it: claims keep nothing else by phase. */
export class PhaseMemory {
  /** The most documents of one claim: half after one that wasn't in time, down to a single one. Infinity: no limit. */
  most = Number.POSITIVE_INFINITY
  /** The number of claims of that size that have been in time since. */
  private inTime = 0
  /** True if the last look saw more unlocked documents than it could read: it didn't get to the woken ones behind them. */
  isCrowded = false
  /** True if the last claim lost many candidates, to replicas that aren't known. */
  isContended = false
  /**
   * True if the next claim begins with the newest documents, because the last one met some that refuse. It alternates with the oldest, so that
   * documents behind any number of refusing ones wait for one claim and not for all of those. Undefined: it met none.
   */
  newestFirst: boolean | undefined
  /** The documents of other replicas' shares that have been seen; undefined: there are none. */
  private seen: SeenDocuments | undefined
  /** The place in the round of the values that take turns. */
  readonly turn: Turn = { after: undefined, isKindOver: false, sharers: undefined }

  constructor(readonly phase: string) {}

  /** Learns from a claim. A timeout costs far more than a small claim, so a larger one is seldom tried. */
  took(documents: number, isInTime: boolean): void {
    if (!isInTime) [this.most, this.inTime] = [Math.max(1, Math.floor(documents / 2)), 0]
    else if (this.most >= FAST_ENOUGH) this.most = Number.POSITIVE_INFINITY
    else if (documents >= this.most) {
      this.inTime += 1
      if (this.inTime === IN_TIME) [this.most, this.inTime] = [this.most * 2, 0]
    }
  }

  seenAt(nowMs: number): SeenDocuments {
    this.seen ??= new SeenDocuments()
    this.seen.turn(nowMs)
    return this.seen
  }

  /** Forgets documents of other replicas' shares: no other replica shares the phase. */
  isAlone(): void {
    this.seen = undefined
  }
}

/** A place in the round of the values that take turns. */
export interface Turn {
  /** The value that had the last turn. Undefined: at the beginning. */
  after: { readonly value: unknown } | undefined
  /** True if there is nothing more of the type of `after`. */
  isKindOver: boolean
  /** The number of values that had documents due last time: this many share a claim. Undefined: it isn't known. */
  sharers: number | undefined
}

/** The time after which a document that isn't seen again is forgotten; it may take twice that. */
const KEPT_FOR_MS = 3_000
/** With more than this the next look starts a new map, and still keeps those that it sees again: small maps are quicker. */
const MOST_KEPT = 1_000
/** With more than this, those only heard of are forgotten: their time then starts at a look. */
const MOST_ANNOUNCED = 10_000

/**
 * One phase's documents in other replicas' shares, each with the time since which this replica has known it to be due and unclaimed.
 * A look at fewer documents than the one before forgets none of them.
 */
class SeenDocuments {
  /** By key and fence: a claim raises the fence, which restarts the time. Numbers only, because there are thousands a second. */
  private recent = new Map<string, number>()
  private before = new Map<string, number>()
  /** By key: said to be due, not seen yet. */
  private readonly announced = new Map<string, number>()
  private turnedAtMs = Number.NEGATIVE_INFINITY

  /** Forgets documents that haven't been seen for long. To be called before a look's results are read, so that all of them are kept. */
  turn(now: number): void {
    if (now - this.turnedAtMs < KEPT_FOR_MS && this.recent.size < MOST_KEPT) return
    this.turnedAtMs = now
    this.before = this.recent
    this.recent = new Map()
  }

  /** @returns the time since which it has been due and unclaimed */
  see(key: string, fence: unknown, now: number): number {
    const at = typeof fence === 'number' || Long.isLong(fence) ? `${key} ${fence}` : key
    const known = this.recent.get(at)
    if (known !== undefined && this.announced.size === 0) return known
    const since = Math.min(known ?? this.before.get(at) ?? now, this.announced.get(key) ?? now)
    this.recent.set(at, since)
    return since
  }

  /** To be called after a look: a document that it didn't show was taken, or is far from its turn. */
  looked(): void {
    this.announced.clear()
  }

  /** Notes that it is said to have been due since then. */
  announce(key: string, since: number): void {
    if (this.announced.size >= MOST_ANNOUNCED) this.announced.clear()
    this.announced.set(key, Math.min(since, this.announced.get(key) ?? since))
  }
}
