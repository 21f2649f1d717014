import type { LimitNeed } from '../../definition/model.js'
import { ASK_AGAIN_MS, LeasedSlots, type SlotsHeld, type SlotsOptions } from './leased-slots.js'
import { SlotRequests } from './slot-requests.js'

const ROUND_MS = 250

/** What needs slots: a phase's documents, or one of them. */
export interface Needing {
  readonly limits?: readonly LimitNeed[] | undefined
}

/**
 * A replica's slots of all limits that its lifecycles name. It leases some before it claims, holds each document under its slots, and gives
 * back what it doesn't need.
 *
 * Invariant: a document is claimed only with its slots in use; they are given back when it is let go. What holds for each limit is with
 * {@link LeasedSlots}.
 */
export class Slots {
  private readonly leases = new Map<string, LeasedSlots>()
  private readonly waiting = new Map<string, () => void>()
  private readonly requests: SlotRequests
  private timer: NodeJS.Timeout | undefined
  private stopped = false

  constructor(private readonly options: SlotsOptions) {
    this.requests = new SlotRequests(options.db, options.identity, options.serverClock)
  }

  /** How many documents of a phase may be claimed now, at most `most`; their slots are in use from now on. */
  async take({ limits = [] }: Needing, most: number): Promise<number> {
    let count = most
    const taken: { readonly need: LimitNeed; readonly count: number }[] = []
    // By name, so that two replicas never keep from each other what both need.
    try {
      for (const need of limits) {
        if (count === 0) break
        count = await this.leased(need).take(need, count)
        taken.push({ need, count })
      }
    } catch (error) {
      count = 0
      throw error
    } finally {
      // What a later limit had no slots for: others may have them at once, as they may have what is missing here.
      for (const { need, count: had } of taken) {
        if (had === count) continue
        const lease = this.leased(need)
        lease.giveBack(need, had - count, true)
        void lease.settle().catch(() => undefined)
      }
    }
    this.watch()
    return count
  }

  /** The same of one limit. `isAllHere`: no other replica has any, so there is none before some is given back here. */
  async takeOf(need: LimitNeed, most: number): Promise<{ readonly count: number; readonly isAllHere: boolean }> {
    const lease = this.leased(need)
    const count = await lease.take(need, most)
    this.watch()
    return { count, isAllHere: lease.isAllHere }
  }

  /** Slots of so many documents are free again. @param unstarted they weren't begun, so they don't count for a rate */
  give({ limits = [] }: Needing, count: number, unstarted = false): void {
    if (count === 0 || limits.length === 0) return
    for (const need of limits) {
      const lease = this.leased(need)
      lease.giveBack(need, count, unstarted)
      if (unstarted) lease.share()
    }
    const waiting = [...this.waiting.values()]
    this.waiting.clear()
    for (const then of waiting) then()
  }

  /** What others have given back since, or people have set, counts from now on. */
  askAnew(): void {
    for (const lease of this.leases.values()) lease.makesDoUntilMs = Number.NEGATIVE_INFINITY
  }

  /** Calls `then` once when slots have been given back here. */
  whenFree(key: string, then: () => void): void {
    this.waiting.set(key, then)
  }

  /** It has got some, or no longer wants any. */
  notWaiting(key: string): void {
    this.waiting.delete(key)
  }

  /** After how long it is worth asking again for a phase that got no slot: another replica gives back what it doesn't need, a rate admits one more. */
  againInMs({ limits = [] }: Needing): number {
    return Math.max(ASK_AGAIN_MS.first, ...limits.map((need) => this.leased(need).againInMs))
  }

  /** Whether a lease of slots that a document needs is nearly over: its step is to stop, as it does for its own lease. */
  areInDanger({ limits }: Needing): boolean {
    return limits?.some(({ limit }) => this.leases.get(limit)?.isInDanger) ?? false
  }

  /** Whether each step counts as one start of a rate. */
  isRated({ limits }: Needing): boolean {
    return limits?.some(({ limit }) => this.leases.get(limit)?.isRated) ?? false
  }

  /** Those of keys as one for each field. */
  held(): SlotsHeld[] {
    const held = new Map<string, SlotsHeld>()
    for (const lease of this.leases.values()) {
      const one = lease.held()
      const before = held.get(one.limit)
      const all = before && { ...one, leased: one.leased + before.leased, used: one.used + before.used }
      held.set(one.limit, all ?? one)
    }
    return [...held.values()]
  }

  /** Gives everything back: to be called when no document is held any more. */
  async stop(): Promise<void> {
    this.stopped = true
    clearTimeout(this.timer)
    await Promise.all([...this.leases.values()].map((lease) => lease.settle().catch(() => undefined)))
  }

  private leased(need: LimitNeed): LeasedSlots {
    const known = this.leases.get(need.limit) ?? new LeasedSlots(need, this.options, this.requests)
    this.leases.set(need.limit, known)
    return known
  }

  private watch(): void {
    if (!this.stopped) this.timer ??= setTimeout(() => this.round(), ROUND_MS).unref()
  }

  private round(): void {
    this.timer = undefined
    const leases = [...this.leases]
    for (const [name, lease] of leases) {
      if (lease.isKey && lease.isIdle && !lease.isAsking) this.leases.delete(name)
      else void lease.keep()
    }
    if (leases.some(([, lease]) => !lease.isIdle)) this.watch()
  }
}
