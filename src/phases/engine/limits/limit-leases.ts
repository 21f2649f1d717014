import type { LimitNeed } from '../../model/model.js'
import { askAgainMs, LimitLease, type LimitLeasesOptions, type SlotsHeld } from './limit-lease.js'
import { LimitRequests } from './limit-requests.js'

const ROUND_MS = 250

/** The limits that a phase's documents need, or that one document is held under. */
export interface Limited {
  readonly limits?: readonly LimitNeed[] | undefined
}

/** Called when slots of these limits are free again. @param by the waiter that gave them back unused; undefined: they were in use */
type OnFree = (needs: readonly LimitNeed[], by: string | undefined) => void

/** A phase that lacked slots when it last asked. */
interface Waiting {
  /** The limit that it waits for. */
  readonly missing: LimitNeed
  /** Monotonic time of its first request without success: its place in line. */
  readonly sinceMs: number
  readonly times: number
  readonly askedAtMs: number
  /** Slots for one document, of the limits before the missing one: it holds them while it waits. */
  readonly held: ReadonlySet<LimitNeed>
}

/** A phase that asks less often gives up its place in line, with what it holds: it may have no room, or nothing due. */
const ASKS_WITHIN_MS = 2_000
/** It gets that place back if it asks again within this: it may have room now and then only. */
const REMEMBERED_MS = 60_000

/**
 * A replica's slots of all limits that its lifecycles name. It leases some before it claims, holds each document under its slots, and gives back
 * those that it doesn't need.
 *
 * Invariant: a document is claimed only with its slots in use; they are given back when it is let go. {@link LimitLease} has the invariants of
 * each limit.
 */
export class LimitLeases {
  private readonly leases = new Map<string, LimitLease>()
  private readonly listeners: OnFree[] = []
  private readonly waiting = new Map<string, Waiting>()
  private readonly requests: LimitRequests
  private timer: NodeJS.Timeout | undefined
  private stopped = false

  constructor(private readonly options: LimitLeasesOptions) {
    this.requests = new LimitRequests(options.db, options.identity, options.serverClock)
  }

  /**
   * Takes slots for documents of a phase. They are in use from now on.
   *
   * First come, first served: while a phase waits for a limit, those that came later get none of it. Several limits are taken in the order of their
   * names, and a phase holds slots for one document of those it has while it waits for the next (ordered acquisition, so that no two wait for each
   * other; Havender, "Avoiding deadlock in multitasking systems", 1968). It holds none while it waits for what only a person or time can give.
   * @param limits in the order of their names
   * @param by the phase
   * @returns the number of documents that may be claimed, at most `most`
   */
  async take({ limits = [] }: Limited, most: number, by: string): Promise<number> {
    const now = this.options.clock.monotonicMs()
    const before = this.waiting.get(by)
    const waited = before && now - before.askedAtMs <= REMEMBERED_MS ? before : undefined
    const sinceMs = waited?.sinceMs ?? now
    // What it held is in use for it from here on, whatever becomes of its place in the meantime.
    const had = new Map([...(before?.held ?? [])].map((need) => [need, 1]))
    const heldBefore = [...had.keys()]
    const held = new Set<LimitNeed>()
    if (before) this.waiting.set(by, { ...before, askedAtMs: now, held })
    let count = most
    let missing: LimitNeed | undefined
    try {
      for (const need of limits) {
        const some = had.get(need) ?? 0
        const isEnough = count <= some
        const more =
          isEnough || this.isAnothersTurn(need, by, sinceMs, now)
            ? 0
            : await this.leaseOf(need).take(need, count - some)
        had.set(need, some + more)
        count = Math.min(count, some + more)
        if (count === 0) missing = need
        if (missing) break
      }
      // Its limit may have been paused or lowered since, or this process stood still.
      missing ??= await this.firstUnconfirmed(heldBefore)
      if (missing) {
        count = 0
        const isHopeful = !this.leaseOf(missing).isHopeless(missing)
        const areSound = [...had].every(([need, n]) => n === 0 || this.leaseOf(need).isSound)
        if (isHopeful && areSound) for (const [need, n] of had) if (n > 0) held.add(need)
        this.waiting.set(by, { missing, sinceMs, times: (waited?.times ?? 0) + 1, askedAtMs: now, held })
      } else this.waiting.delete(by)
    } catch (error) {
      count = 0
      throw error
    } finally {
      // Others may have at once what it can't use yet.
      for (const [need, n] of had) this.handBack(need, n - (held.has(need) ? 1 : count))
    }
    this.watch()
    return count
  }

  /** Takes slots of one limit, without turns. `isAllHere`: no other replica has any, so there are no more before some are given back here. */
  async takeOf(need: LimitNeed, most: number): Promise<{ readonly count: number; readonly isAllHere: boolean }> {
    const lease = this.leaseOf(need)
    const count = await lease.take(need, most)
    this.watch()
    return { count, isAllHere: lease.isAllHere }
  }

  /** Gives back the slots of `count` documents that were held. */
  release({ limits = [] }: Limited, count: number): void {
    if (count === 0) return
    for (const need of limits) this.leaseOf(need).giveBack(need, count, false)
    this.wake(limits)
  }

  /**
   * Gives back slots that a claim had no use for: they don't count for a rate, and another replica may have them immediately.
   * @param by the waiter that has claimed: slots that it gives back itself are no reason to claim again. Undefined: it got nothing, and wakes no
   *   other waiter: they would wake each other for as long as none can use the slots. One that was refused in the meantime asks again in a moment.
   */
  releaseUnused({ limits = [] }: Limited, count: number, by: string | undefined): void {
    if (count === 0) return
    for (const need of limits) {
      const lease = this.leaseOf(need)
      lease.giveBack(need, count, true)
      lease.share()
    }
    if (by !== undefined) this.wake(limits, by)
  }

  /** Makes the next requests see what other replicas have given back, and people have set, since the last ones. */
  refresh(): void {
    for (const lease of this.leases.values()) lease.reuseUntilMs = Number.NEGATIVE_INFINITY
  }

  /** Calls `listener` whenever slots have been given back here. */
  onFree(listener: OnFree): void {
    this.listeners.push(listener)
  }

  /** A phase no longer wants any. */
  withdraw(by: string): void {
    const waits = this.waiting.get(by)
    this.waiting.delete(by)
    if (waits) this.drop(waits.held, by)
  }

  /**
   * The time after which it is worth asking again: another replica gives back slots that it doesn't need, or a rate admits one more document.
   * @param by the waiter that has asked for a phase and got none
   */
  againInMs({ limits = [] }: Limited, by?: string): number {
    const leastMs = askAgainMs(0, 1)
    const againMs = Math.max(0, ...limits.map((need) => this.leaseOf(need).againInMs))
    const waited = by !== undefined && againMs === 0 ? this.waiting.get(by) : undefined
    if (!waited) return Math.max(leastMs, againMs)
    return askAgainMs(this.options.clock.monotonicMs() - waited.sinceMs, waited.times)
  }

  /** True if a lease of slots that a document needs is nearly over: its step must stop, the same way that it does for its own lease. */
  areInDanger({ limits }: Limited): boolean {
    return limits?.some(({ limit }) => this.leases.get(limit)?.isInDanger) ?? false
  }

  /** True if each step counts as one start of a rate. */
  isRated({ limits }: Limited): boolean {
    return limits?.some(({ limit }) => this.leases.get(limit)?.isRated) ?? false
  }

  /** The slots of each limit; the keys of a field are added up. */
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

  /** Gives everything back. Call it when no document is held any more. */
  async stop(): Promise<void> {
    this.stopped = true
    clearTimeout(this.timer)
    for (const { held } of this.waiting.values()) for (const need of held) this.leaseOf(need).giveBack(need, 1, true)
    this.waiting.clear()
    await Promise.all([...this.leases.values()].map((lease) => lease.settle().catch(() => undefined)))
  }

  private wake(limits: readonly LimitNeed[], by?: string): void {
    for (const listener of this.listeners) listener(limits, by)
  }

  /** Finds the first of these needs, whose slots were taken some time ago, that may no longer begin a document. */
  private async firstUnconfirmed(needs: readonly LimitNeed[]): Promise<LimitNeed | undefined> {
    const confirmed = await Promise.all(needs.map((need) => this.leaseOf(need).confirm()))
    return needs.find((_, i) => !confirmed[i])
  }

  /** True if a phase that came earlier waits for this limit. */
  private isAnothersTurn({ limit }: LimitNeed, by: string, sinceMs: number, now: number): boolean {
    return [...this.waiting].some(
      ([other, waits]) =>
        other !== by && waits.sinceMs < sinceMs && waits.missing.limit === limit && this.isInLine(waits, now),
    )
  }

  private isInLine({ missing, askedAtMs }: Waiting, now: number): boolean {
    return now - askedAtMs <= ASKS_WITHIN_MS && !this.leaseOf(missing).isHopeless(missing)
  }

  /** Gives back slots so that others may have them immediately. */
  private handBack(need: LimitNeed, count: number): void {
    if (count === 0) return
    const lease = this.leaseOf(need)
    lease.giveBack(need, count, true)
    void lease.settle().catch(() => undefined)
  }

  /** Gives back what phases hold that are no longer in line, or may not begin with it. */
  private dropHeld(): void {
    const now = this.options.clock.monotonicMs()
    for (const [by, waits] of this.waiting) {
      if (waits.held.size === 0) continue
      const areSound = [...waits.held].every((need) => this.leaseOf(need).isSound)
      if (areSound && this.isInLine(waits, now)) continue
      this.waiting.set(by, { ...waits, held: new Set() })
      this.drop(waits.held, by)
    }
  }

  private drop(held: ReadonlySet<LimitNeed>, by: string): void {
    const needs = [...held]
    for (const need of needs) this.handBack(need, 1)
    this.wake(needs, by)
  }

  private leaseOf(need: LimitNeed): LimitLease {
    const known = this.leases.get(need.limit) ?? new LimitLease(need, this.options, this.requests)
    this.leases.set(need.limit, known)
    return known
  }

  private watch(): void {
    if (!this.stopped) this.timer ??= setTimeout(() => this.round(), ROUND_MS).unref()
  }

  private round(): void {
    this.timer = undefined
    this.dropHeld()
    const leases = [...this.leases]
    for (const [name, lease] of leases) {
      if (lease.isKey && lease.isIdle && !lease.isAsking) this.leases.delete(name)
      else void lease.keep()
    }
    if (leases.some(([, lease]) => !lease.isIdle)) this.watch()
  }
}
