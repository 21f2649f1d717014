import type { LimitNeed } from '../../model/model.js'
import { askAgainMs, LeasedSlots, type SlotsHeld, type SlotsOptions } from './leased-slots.js'
import { SlotRequests } from './slot-requests.js'

const ROUND_MS = 250

/** What needs slots: a phase's documents, or one of them. */
export interface Needing {
  readonly limits?: readonly LimitNeed[] | undefined
}

/** @param by who has given them back unused; undefined: they were in use */
type OnFree = (needs: readonly LimitNeed[], by: string | undefined) => void

/** What has got no slots when it last asked. */
interface InVain {
  readonly needs: readonly LimitNeed[]
  readonly sinceMs: number
  readonly times: number
  readonly askedAtMs: number
  /** Others have what is missing, and will give it back. */
  readonly isHopeful: boolean
  /** Slots for one document of it that are kept while those of another limit are missing. */
  readonly kept: Set<LimitNeed>
}

/** Who has got nothing for so long goes first. */
const GOES_FIRST_AFTER_MS = 2_000
/** For who hasn't asked for so long nothing is kept: it may have no place, or no longer want any. */
const ASKS_WITHIN_MS = 2_000
/** What it has waited is remembered for longer: it may get a place now and then only. */
const REMEMBERED_MS = 60_000

/**
 * A replica's slots of all limits that its lifecycles name. It leases some before it claims, holds each document under its slots, and gives
 * back what it doesn't need.
 *
 * Invariant: a document is claimed only with its slots in use; they are given back when it is let go. What holds for each limit is with
 * {@link LeasedSlots}.
 */
export class Slots {
  private readonly leases = new Map<string, LeasedSlots>()
  private readonly listeners: OnFree[] = []
  private readonly inVain = new Map<string, InVain>()
  private readonly requests: SlotRequests
  private timer: NodeJS.Timeout | undefined
  private stopped = false

  constructor(private readonly options: SlotsOptions) {
    this.requests = new SlotRequests(options.db, options.identity, options.serverClock)
  }

  /**
   * How many documents of a phase may be claimed now, at most `most`; their slots are in use from now on.
   *
   * Who has got nothing for long goes first: of each limit that it needs others get none before it, and slots for one document are kept for it
   * until it has those of all. By turns with the others, as what is missing may be in use for long: from 2 to 4 s of waiting, 8 to 16, 64 to
   * 128, 512 to 1,024…
   * Limits are asked for in the order of their names, so that none who keep some wait for each other.
   * @param by who asks
   */
  async take({ limits = [] }: Needing, most: number, by: string): Promise<number> {
    const now = this.options.clock.monotonicMs()
    const known = this.inVain.get(by)
    const waited = known && now - known.askedAtMs <= REMEMBERED_MS ? known : undefined
    const goesFirst = waited !== undefined && isItsTurn(waited, now)
    // In use for it from here on, whatever becomes of its turn meanwhile.
    const before = [...(known?.kept ?? [])]
    const had = new Map(before.map((need) => [need, 1]))
    known?.kept.clear()
    const kept = new Set<LimitNeed>()
    let count = most
    let missing: LimitNeed | undefined
    try {
      for (const need of limits) {
        const some = had.get(need) ?? 0
        const more =
          count <= some || this.isOfAnother(need, by, now) ? 0 : await this.leased(need).take(need, count - some)
        had.set(need, some + more)
        count = Math.min(count, some + more)
        if (count === 0) missing = need
        if (missing) break
      }
      // Its limit may have been paused or lowered since, or this process stood still.
      missing ??= await this.firstUnconfirmed(before)
      if (missing) {
        count = 0
        const isHopeful = !this.leased(missing).isHopeless(missing)
        const areSound = [...had].every(([need, n]) => n === 0 || this.leased(need).isSound)
        if (goesFirst && isHopeful && areSound) for (const [need, n] of had) if (n > 0) kept.add(need)
        const [sinceMs, times] = [waited?.sinceMs ?? now, (waited?.times ?? 0) + 1]
        this.inVain.set(by, { needs: limits, sinceMs, times, askedAtMs: now, isHopeful, kept })
      } else this.inVain.delete(by)
    } catch (error) {
      count = 0
      throw error
    } finally {
      // What a later limit had no slots for: others may have them at once, as they may have what is missing here.
      for (const [need, n] of had) this.handBack(need, n - (kept.has(need) ? 1 : count))
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

  /** Slots of so many documents that were held are free again. */
  give({ limits = [] }: Needing, count: number): void {
    if (count === 0) return
    for (const need of limits) this.leased(need).giveBack(need, count, false)
    this.wake(limits)
  }

  /**
   * Slots that a claim had no use for: they don't count for a rate, and another replica may have them at once.
   * @param by who has claimed: what it gives back itself is no reason to claim again. Undefined: it has got nothing, and wakes nobody: they would
   *   wake each other for as long as none can use them. Who was refused meanwhile asks again in a moment.
   */
  giveUnused({ limits = [] }: Needing, count: number, by: string | undefined): void {
    if (count === 0) return
    for (const need of limits) {
      const lease = this.leased(need)
      lease.giveBack(need, count, true)
      lease.share()
    }
    if (by !== undefined) this.wake(limits, by)
  }

  /** What others have given back since, or people have set, counts from now on. */
  askAnew(): void {
    for (const lease of this.leases.values()) lease.makesDoUntilMs = Number.NEGATIVE_INFINITY
  }

  /** Calls `listener` whenever slots have been given back here. */
  onFree(listener: OnFree): void {
    this.listeners.push(listener)
  }

  /** It no longer wants any. */
  noLonger(by: string): void {
    const { kept } = this.inVain.get(by) ?? {}
    this.inVain.delete(by)
    if (kept) this.drop(kept, by)
  }

  /**
   * After how long it is worth asking again: another replica gives back what it doesn't need, a rate admits one more.
   * @param by who has asked for a phase and got none
   */
  againInMs({ limits = [] }: Needing, by?: string): number {
    const leastMs = askAgainMs(0, 1)
    const againMs = Math.max(0, ...limits.map((need) => this.leased(need).againInMs))
    const waited = by !== undefined && againMs === 0 ? this.inVain.get(by) : undefined
    if (!waited) return Math.max(leastMs, againMs)
    return askAgainMs(this.options.clock.monotonicMs() - waited.sinceMs, waited.times)
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
    for (const { kept } of this.inVain.values()) for (const need of kept) this.leased(need).giveBack(need, 1, true)
    this.inVain.clear()
    await Promise.all([...this.leases.values()].map((lease) => lease.settle().catch(() => undefined)))
  }

  private wake(limits: readonly LimitNeed[], by?: string): void {
    for (const listener of this.listeners) listener(limits, by)
  }

  /** Which of these, taken some time ago, may no longer begin anything. */
  private async firstUnconfirmed(needs: readonly LimitNeed[]): Promise<LimitNeed | undefined> {
    const confirmed = await Promise.all(needs.map((need) => this.leased(need).confirm()))
    return needs.find((_, i) => !confirmed[i])
  }

  /** Whether somebody who has waited for longer goes first, and still lacks this. */
  private isOfAnother({ limit }: LimitNeed, by: string, now: number): boolean {
    const sinceMs = this.inVain.get(by)?.sinceMs ?? now
    for (const [other, waits] of this.inVain) {
      if (other === by || waits.sinceMs >= sinceMs || !goesFirst(waits, now)) continue
      if (waits.needs.some((need) => need.limit === limit && !waits.kept.has(need))) return true
    }
    return false
  }

  /** Others may have them at once. */
  private handBack(need: LimitNeed, count: number): void {
    if (count === 0) return
    const lease = this.leased(need)
    lease.giveBack(need, count, true)
    void lease.settle().catch(() => undefined)
  }

  /** What is kept for who no longer goes first, or may not begin with it, is free again. */
  private dropKept(): void {
    const now = this.options.clock.monotonicMs()
    for (const [by, waits] of this.inVain) {
      const areSound = [...waits.kept].every((need) => this.leased(need).isSound)
      if (!areSound || !goesFirst(waits, now)) this.drop(waits.kept, by)
    }
  }

  private drop(kept: Set<LimitNeed>, by: string): void {
    const needs = [...kept]
    kept.clear()
    for (const need of needs) this.handBack(need, 1)
    this.wake(needs, by)
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
    this.dropKept()
    const leases = [...this.leases]
    for (const [name, lease] of leases) {
      if (lease.isKey && lease.isIdle && !lease.isAsking) this.leases.delete(name)
      else void lease.keep()
    }
    if (leases.some(([, lease]) => !lease.isIdle)) this.watch()
  }
}

/** Whether others make way for it now. */
const goesFirst = (waits: InVain, now: number): boolean =>
  now - waits.askedAtMs <= ASKS_WITHIN_MS && isItsTurn(waits, now)

function isItsTurn({ sinceMs, isHopeful }: InVain, now: number): boolean {
  const waitedMs = now - sinceMs
  if (waitedMs < GOES_FIRST_AFTER_MS || !isHopeful) return false
  const doublings = Math.floor(Math.log2(waitedMs / GOES_FIRST_AFTER_MS))
  return doublings < 4 ? doublings % 2 === 0 : doublings % 3 === 2
}
