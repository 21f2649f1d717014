import type { Db } from 'mongodb'
import { Mutex } from '../../../concurrency/index.js'
import {
  LEAST_PAUSE_MS,
  LeaseAge,
  type Limit,
  pausedLimitText,
  type ServerClock,
  type SlotGrant,
} from '../../../lock/index.js'
import { numbered, typed } from '../../../options/index.js'
import type { Clock } from '../../../time/index.js'
import type { LimitNeed } from '../../model/model.js'
import type { Logger } from '../../reporting/logger.js'
import type { LimitRequests } from './limit-requests.js'

/** The time without a request for them after which unused slots are given back. */
const UNUSED_MS = 1_000
/** The same for a key: sooner, because its slots are few, and another replica may have the next document. */
const UNUSED_KEY_MS = 100
/** The longest time between requests of a replica that has enough slots: others may have begun to wait since, and be due a share of them. */
const ASKS_WITHIN_MS = 1_000
/** The pause between requests of a replica that has all slots it may have at present. In it, claims use slots that its own documents give back. */
const REUSE_MS = 50

export interface LimitLeasesOptions {
  readonly db: Db
  readonly identity: string
  readonly clock: Clock
  readonly serverClock: ServerClock
  readonly logger: Logger
  /** Returns the length of a lease of slots: that of the longest lease of documents that need some. */
  readonly leaseMs: () => number
  /** The number of slots that lifecycles declare for a limit, by its name. Default: no limit is declared. */
  readonly declared?: ReadonlyMap<string, number> | undefined
}

/** The slots that a replica has of a limit, as shown to people. */
export interface SlotsHeld {
  /** The limit's name. */
  readonly limit: string
  /** The slots leased by this replica; renewed for as long as they are used. */
  readonly leased: number
  /** The part of them that it holds documents under, or keeps for a document that lacks others. */
  readonly used: number
  /** The limit's number of slots; null: any number, or it isn't known. */
  readonly total: number | null
  /** True if a person has paused it, as of the last request. */
  readonly paused: boolean
}

/**
 * The slots that this replica has of one limit.
 *
 * Invariants: (1) used and free slots together are never more than those leased, by a lease that isn't over; (2) one request at a time is under way,
 * and slots are put to use only between requests, so that no request gives back slots that have just been put to use.
 */
export class LimitLease {
  /** The slots that this replica has leased; by the server's record there may be fewer, but never more. */
  private leased = 0
  /** The number of these that may be in use. */
  private usable = 0
  /** The number of slots in use that aren't to be used again: the limit has fewer, is paused, or others have got them. */
  private excess = 0
  private used = 0
  /** The number of documents that a rate has admitted and that haven't begun. */
  private starts = 0
  private limit: Limit | undefined
  /** Renewed by each request that is granted. It lasts for as long as was asked for: lockTimeouts may have become longer since. */
  private readonly lease: LeaseAge
  private wantedAtMs = Number.NEGATIVE_INFINITY
  private readonly requesting = new Mutex()
  private reported: string | undefined
  private othersWait = false
  /** True if it waits, and before all other replicas that do: free slots are reserved for it, and unused until it asks. */
  isNext = false
  /**
   * The monotonic time until which it doesn't ask for more, for documents that need `reuseFor` slots each or more. Where there weren't two for a
   * document, there may still be one for another.
   */
  private reuseUntilMs = Number.NEGATIVE_INFINITY
  private reuseFor = 1
  private isOutdated = false
  /** True if the last request got less than it asked for. */
  private isShort = false
  /** True if the last request for slots got none for a document, whatever seems free: they are reserved for others, or none is granted for now. */
  private isRefused = false
  /** True if this process stood still past the end of the lease, and others have got slots that it has in use. */
  private isOvertaken = false

  private readonly name: string

  constructor(
    private readonly need: LimitNeed,
    private readonly options: LimitLeasesOptions,
    private readonly requests: LimitRequests,
  ) {
    this.name = need.limit
    this.lease = new LeaseAge(options.clock)
  }

  private get declared(): number | undefined {
    return this.options.declared?.get(this.name)
  }

  get isKey(): boolean {
    return this.need.key !== undefined
  }

  get isAsking(): boolean {
    return this.requesting.open > 0
  }

  /** True if no other replica has any of the limit's slots, so that there are no more before some are given back here. */
  get isAllHere(): boolean {
    return this.limit?.slots != null && this.used >= this.limit.slots
  }

  get isIdle(): boolean {
    return this.leased === 0 && this.used === 0 && this.starts === 0
  }

  get isRated(): boolean {
    return this.limit?.rate != null
  }

  /** The time between two starts of its rate; 0: it has none. */
  get startEveryMs(): number {
    const rate = this.limit?.rate
    return rate ? Math.max(LEAST_PAUSE_MS, rate.perMs / Math.max(rate.starts, 1)) : 0
  }

  /**
   * The number of documents that it may have slots for, as of the last request; Infinity before the first one. 0 where that got less than it asked
   * for, and others may have given some back since: only another request can show that.
   */
  free({ slots: each }: LimitNeed): number {
    const { limit } = this
    if (!Number.isFinite(this.lease.ageMs())) return Number.POSITIVE_INFINITY
    const here = this.available(each)
    if (!limit || limit.paused || this.isRated || this.reuses(each)) return here
    if (this.isShort || this.isRefused) return 0
    if (limit.slots === null) return Number.POSITIVE_INFINITY
    const others = limit.holders.reduce((sum, { by, slots }) => sum + (by === this.options.identity ? 0 : slots), 0)
    return Math.max(here, Math.floor((limit.slots - others - this.used) / each))
  }

  /** True if there are no slots to be had before a person changes something, or time passes: waiting for other replicas is of no use. */
  isHopeless({ slots: each }: LimitNeed): boolean {
    const isKnown = this.limit !== undefined || Number.isFinite(this.lease.ageMs())
    return this.isRated || (isKnown && this.problem(each) !== undefined)
  }

  /** True if a document may begin with slots in use, as far as is known: there aren't too many, the limit isn't paused, and the lease goes on. */
  get isSound(): boolean {
    return this.excess === 0 && this.limit !== undefined && !this.limit.paused && !this.isInDanger
  }

  /** Asks the server, and resolves to `isSound` as it is now: the slots were taken some time ago. */
  async confirm(): Promise<boolean> {
    await this.settle()
    return this.isSound
  }

  get isInDanger(): boolean {
    return this.used > 0 && (this.isOvertaken || this.lease.isInDanger(this.options.leaseMs()))
  }

  held(): SlotsHeld {
    return {
      limit: this.need.key?.of ?? this.name,
      leased: this.leased,
      used: this.used,
      total: this.isKey ? null : (this.limit?.slots ?? null),
      paused: !this.isKey && this.limit?.paused != null,
    }
  }

  /**
   * Puts slots to use for up to `most` documents, and resolves to the number of documents that there are slots for.
   * @param wanted the number to ask for where it has too few: more documents may follow at once
   */
  take({ slots: each }: LimitNeed, most: number, wanted = most): Promise<number> {
    return this.requesting.run(async () => {
      this.wantedAtMs = this.options.clock.monotonicMs()
      const count = this.isRated ? most : wanted
      const isEnough = this.reuses(each) || (this.available(each) >= count && this.lease.ageMs() < ASKS_WITHIN_MS)
      if (!isEnough || this.isOutdated || this.isInDanger) await this.ask(count * each, count, each)
      const taken = Math.min(most, this.available(each))
      this.used += taken * each
      if (this.isRated) this.starts -= taken
      this.report(each)
      return taken
    })
  }

  /**
   * Gives back the slots of `count` documents.
   * @param unused they haven't begun: their starts don't count
   * @param atOnce other replicas may have them immediately. Default: the unused ones, if another replica waits
   */
  release({ slots: each }: LimitNeed, count: number, unused: boolean, atOnce = unused && this.othersWait): void {
    this.used -= count * each
    const gone = Math.min(this.excess, count * each)
    this.usable -= gone
    this.excess -= gone
    if (unused && this.isRated) this.starts += count
    if (atOnce && this.leased > this.used) void this.settle().catch(() => undefined)
  }

  /** Renews the lease in time, and gives back slots that no document has needed for a while. Never rejects: a failed request is sent again. */
  async keep(): Promise<void> {
    const isUnused = this.leased > this.used || this.starts > 0
    const sinceMs = this.options.clock.monotonicMs() - this.wantedAtMs
    const isAging = this.used > 0 && this.lease.isAging(this.options.leaseMs())
    if (isAging || (isUnused && sinceMs >= (this.isKey ? UNUSED_KEY_MS : UNUSED_MS)))
      await this.settle().catch(() => undefined)
  }

  /** Keeps the slots in use, and gives back the rest. */
  settle(): Promise<void> {
    return this.requesting.run(async () => {
      if (!this.isIdle) await this.ask(0, -this.starts)
    })
  }

  /** Makes the next request see what other replicas have given back, and people have set, since the last one. */
  refresh(): void {
    this.reuseUntilMs = Number.NEGATIVE_INFINITY
    this.isOutdated = true
  }

  /** True if it has got all slots that it may have at present: it uses those that are given back here, and doesn't ask for more yet. */
  reuses(each: number): boolean {
    return this.usable > 0 && each >= this.reuseFor && this.options.clock.monotonicMs() < this.reuseUntilMs
  }

  /** The number of documents that there are free slots and starts for; 0 with a lease that may be over. */
  private available(each: number): number {
    if (this.lease.isInDanger(this.options.leaseMs())) return 0
    const free = Math.max(0, Math.floor((this.usable - this.used) / each))
    return this.isRated ? Math.min(free, this.starts) : free
  }

  private async ask(slots: number, starts: number, each = 1): Promise<void> {
    const { identity, clock, serverClock } = this.options
    const leaseMs = this.options.leaseMs()
    const sentAtMs = clock.monotonicMs()
    // After a forward step of the server's clock that isn't confirmed, leases of others only seem to be over.
    const isHeld = serverClock.hold() !== undefined
    const wanted = starts < 0 ? starts : isHeld ? 0 : Math.max(0, starts - this.starts)
    const inUse = this.used
    let grant: SlotGrant | undefined
    try {
      grant = await this.requests.ask(this.name, {
        ...{ by: identity, inUse, slots: isHeld ? 0 : slots, each, starts: wanted },
        ...{ leaseMs, key: this.need.key, declared: this.declared },
      })
    } catch (error) {
      // The request may have been executed.
      this.leased = Math.max(this.leased, inUse + slots)
      this.usable = this.used
      this.starts += Math.min(0, starts)
      throw error
    }
    const excess = excessOf(grant)
    this.isOvertaken = excess > 0 && this.used > 0 && (this.isOvertaken || this.lease.ageMs() > this.lease.lastsMs)
    this.excess = Math.max(0, Math.min(excess, inUse) - (inUse - this.used))
    this.limit = grant?.limit
    this.isOutdated = false
    this.othersWait = grant?.othersWait ?? false
    this.isNext = grant?.isNext ?? false
    this.isShort = grant?.isShort ?? false
    this.isRefused = slots > 0 && grant !== undefined && grant.slots - inUse < each
    const isAll = this.isShort && this.used === inUse && !this.isRated
    this.reuseFor = each
    this.reuseUntilMs = isAll ? clock.monotonicMs() + REUSE_MS : sentAtMs
    // Slots given back during the request aren't put to use again: the answer knows nothing of that, and the limit may have been lowered.
    this.usable = grant ? this.used + grant.slots - inUse : 0
    this.leased = grant?.slots ?? 0
    this.starts += starts < 0 ? starts : (grant?.starts ?? 0)
    this.lease.renewed(sentAtMs, leaseMs)
  }

  /** Logs, once, a reason for documents to wait that only a person can change; and its end. */
  private report(each: number): void {
    if (this.isKey) return // there may be any number of them; phaselock show reports it
    const problem = this.problem(each)
    if (problem !== undefined && problem !== this.reported) this.options.logger.warn(problem)
    if (problem === undefined && this.reported !== undefined)
      this.options.logger.info(`limit ${this.name}: there are slots again`)
    this.reported = problem
  }

  private problem(each: number): string | undefined {
    const { name, limit } = this
    const isEnough = (this.declared ?? 0) >= each
    const fix = `to set it: phaselock limits set ${typed(name)} --slots ${isEnough ? 'declared' : each}`
    if (limit?.paused) return `limit ${pausedLimitText(name, limit.paused)}; documents that need it wait`
    if (!limit) return `limit ${name}: it isn't in phaselock.limits, so documents that need it wait; ${fix}`
    if (limit.damaged !== null)
      return `limit ${name}: ${limit.damaged}; it counts as ${limit.slots === null ? 'any number of slots' : numbered(limit.slots, 'slot')}; to mend it: phaselock limits set ${typed(name)}`
    if (limit.slots === null || limit.slots >= each) return undefined
    return `limit ${name}: it has ${numbered(limit.slots, 'slot')}, and a step needs ${each}, so documents that need it wait; ${fix}`
  }
}

/** The number of leased slots in excess of those that the limit has: all of them while it is paused. */
function excessOf(grant: SlotGrant | undefined): number {
  if (!grant || grant.limit.slots === null) return grant?.limit.paused ? grant.slots : 0
  const { slots, paused, holders } = grant.limit
  return Math.max(0, holders.reduce((sum, one) => sum + one.slots, 0) - (paused ? 0 : slots))
}
