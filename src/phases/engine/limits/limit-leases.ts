import type { LimitNeed } from '../../model/model.js'
import { LimitLease, type LimitLeasesOptions, type SlotsHeld } from './limit-lease.js'
import { LimitRequests } from './limit-requests.js'

const ROUND_MS = 250

/** The limits that a phase's documents need, or that one document is held under. */
export interface Limited {
  readonly limits?: readonly LimitNeed[] | undefined
}

/** Called when slots of these limits are free again. @param by the waiter that gave them back unused; undefined: they were in use */
type OnFree = (needs: readonly LimitNeed[], by: SlotWaiter | undefined) => void

/** A waiter that asks less often gives up its place in line, with what it holds: it may have no room, or nothing due. */
const ASKS_WITHIN_MS = 2_000
/** It gets that place back if it asks again within this: it may have room now and then only. */
const REMEMBERED_MS = 60_000
/** The longest time between requests of the replica that has waited longest: free slots are reserved for it, and unused until it asks. */
const NEXT_ASKS_WITHIN_MS = 250
const NONE: ReadonlySet<LimitNeed> = new Set()

/** A phase, as one that waits for slots. The queue of the phase owns it. */
export class SlotWaiter {
  /** The limit that it lacked slots of when it last asked. */
  missing: LimitNeed | undefined
  /** The monotonic time of its first request without success: its place in line. */
  sinceMs = 0
  askedAtMs = Number.NEGATIVE_INFINITY
  /** Slots for one document, of the limits before the missing one: it holds them while it waits. */
  held = NONE
}

/**
 * A replica's slots of all limits that its lifecycles need. It leases some for documents that a claim has chosen, holds each document under its
 * slots, and gives back those that it doesn't need.
 *
 * Invariant: a document is claimed only with its slots in use; they are given back when it is let go. {@link LimitLease} has the invariants of
 * each limit.
 */
export class LimitLeases {
  private readonly leases = new Map<string, LimitLease>()
  private readonly listeners: OnFree[] = []
  /** Those that lacked slots when they last asked. */
  private readonly line = new Set<SlotWaiter>()
  private readonly requests: LimitRequests
  private timer: NodeJS.Timeout | undefined
  private stopped = false

  constructor(private readonly options: LimitLeasesOptions) {
    this.requests = new LimitRequests(options.db, options.identity, options.serverClock)
  }

  /** The number of documents that there may be slots for, as far as is known. 0: a request has to show it. */
  free({ limits = [] }: Limited, by: SlotWaiter): number {
    const sinceMs = this.placeOf(by)
    return Math.min(...limits.map((need) => (this.isAnothersTurn(need, sinceMs) ? 0 : this.leaseOf(need).free(need))))
  }

  /** True if only slots that are given back here are free, as far as is known. */
  areAllHere({ limits = [] }: Limited): boolean {
    return limits.some((need) => this.leaseOf(need).reuses(need.slots))
  }

  /**
   * Takes slots for documents of a phase. They are in use from now on.
   *
   * First come, first served: while a phase waits for a limit, those that came later get none of it. Several limits are taken in the order of their
   * names, and a phase holds slots for one document of those it has while it waits for the next (ordered acquisition, so that no two wait for each
   * other; Havender, "Avoiding deadlock in multitasking systems", 1968). It holds none while it waits for what only a person or time can give.
   * @param limits in the order of their names
   * @param wanted the number to lease slots for where there are too few: more documents may follow at once
   * @returns the number of documents that may be claimed, at most `most`
   */
  async take({ limits = [] }: Limited, most: number, by: SlotWaiter, wanted = most): Promise<number> {
    by.sinceMs = this.placeOf(by)
    by.askedAtMs = this.now
    // What it held is in use for it from here on, whatever becomes of its place in the meantime.
    const heldBefore = [...by.held]
    const had = new Map(heldBefore.map((need) => [need, 1]))
    by.held = NONE
    let count = most
    let missing: LimitNeed | undefined
    try {
      for (const need of limits) {
        const some = had.get(need) ?? 0
        const isRefused = count <= some || this.isAnothersTurn(need, by.sinceMs)
        const more = isRefused ? 0 : await this.leaseOf(need).take(need, count - some, wanted - some)
        had.set(need, some + more)
        count = Math.min(count, some + more)
        if (count === 0) missing = need
        if (missing) break
      }
      // Its limit may have been paused or lowered since, or this process stood still.
      missing ??= await this.firstUnconfirmed(heldBefore)
      by.missing = missing
      if (missing) {
        count = 0
        const isHopeful = !this.leaseOf(missing).isHopeless(missing)
        const some = [...had].filter(([, n]) => n > 0).map(([need]) => need)
        if (isHopeful && some.every((need) => this.leaseOf(need).isSound)) by.held = new Set(some)
        this.line.add(by)
      } else this.line.delete(by)
    } catch (error) {
      count = 0
      throw error
    } finally {
      // Others may have at once what it can't use yet.
      for (const [need, n] of had) this.handBack(need, n - (by.held.has(need) ? 1 : count))
      this.watch() // a request that failed may have been granted
    }
    return count
  }

  /** Takes slots of one limit, without turns. `isAllHere`: no other replica has any, so there are no more before some are given back here. */
  async takeOf(need: LimitNeed, most: number): Promise<{ readonly count: number; readonly isAllHere: boolean }> {
    const lease = this.leaseOf(need)
    const count = await lease.take(need, most).finally(() => this.watch())
    return { count, isAllHere: lease.isAllHere }
  }

  /**
   * Gives back the slots of `count` documents, and wakes the phases that wait for some of their limits.
   * @param unused for documents that haven't begun: they don't count for a rate, and other replicas that wait have the slots immediately. A claim
   *   that won some (`by`) doesn't wake its own phase. One that won none (`by` is undefined) wakes no phase: they would wake each other for as long
   *   as none can use the slots. A phase that was refused in the meantime asks again in a moment.
   */
  release({ limits = [] }: Limited, count: number, unused?: { readonly by: SlotWaiter | undefined }): void {
    if (count === 0 || limits.length === 0) return
    for (const need of limits) this.leaseOf(need).release(need, count, unused !== undefined)
    if (!unused || unused.by) for (const listener of this.listeners) listener(limits, unused?.by)
  }

  /** Makes the next requests see what other replicas have given back, and people have set, since the last ones. */
  refresh(): void {
    for (const lease of this.leases.values()) lease.refresh()
  }

  /** Calls `listener` whenever slots have been given back here. */
  onFree(listener: OnFree): void {
    this.listeners.push(listener)
  }

  /** Takes a phase out of the line, because it no longer wants any. */
  withdraw(by: SlotWaiter): void {
    if (!this.line.delete(by)) return
    this.dropHeld(by)
    // Those that waited behind it needn't wait for their next try.
    for (const listener of this.listeners) listener([by.missing!], by)
  }

  /**
   * The bounds of the time after which it is worth asking again for slots that were lacking. `notBeforeMs`: a rate admits one more document.
   * `withinMs`: free slots may be reserved for this replica.
   */
  againIn({ limits = [] }: Limited): { readonly notBeforeMs: number; readonly withinMs?: number } {
    const leases = limits.map((need) => this.leaseOf(need))
    const notBeforeMs = Math.max(0, ...leases.map(({ startEveryMs }) => startEveryMs))
    return { notBeforeMs, ...(leases.some(({ isNext }) => isNext) && { withinMs: NEXT_ASKS_WITHIN_MS }) }
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
    for (const by of this.line) for (const need of by.held) this.leaseOf(need).release(need, 1, true)
    this.line.clear()
    await Promise.all([...this.leases.values()].map((lease) => lease.settle().catch(() => undefined)))
  }

  /** Finds the first of these needs, whose slots were taken some time ago, that may no longer begin a document. */
  private async firstUnconfirmed(needs: readonly LimitNeed[]): Promise<LimitNeed | undefined> {
    const confirmed = await Promise.all(needs.map((need) => this.leaseOf(need).confirm()))
    return needs.find((_, i) => !confirmed[i])
  }

  /** The time since which it has waited: now, if it doesn't. */
  private placeOf(by: SlotWaiter): number {
    return this.line.has(by) && this.now - by.askedAtMs <= REMEMBERED_MS ? by.sinceMs : this.now
  }

  /** True if another phase waits for this limit, and has done so for longer. */
  private isAnothersTurn({ limit }: LimitNeed, sinceMs: number): boolean {
    return [...this.line].some((one) => one.sinceMs < sinceMs && one.missing!.limit === limit && this.isInLine(one))
  }

  private isInLine({ missing, askedAtMs }: SlotWaiter): boolean {
    return this.now - askedAtMs <= ASKS_WITHIN_MS && !this.leaseOf(missing!).isHopeless(missing!)
  }

  private get now(): number {
    return this.options.clock.monotonicMs()
  }

  /** Gives back slots so that others may have them immediately. */
  private handBack(need: LimitNeed, count: number): void {
    if (count > 0) this.leaseOf(need).release(need, count, true, true)
  }

  private dropHeld(by: SlotWaiter): void {
    const needs = [...by.held]
    by.held = NONE
    for (const need of needs) this.handBack(need, 1)
    if (needs.length > 0) for (const listener of this.listeners) listener(needs, by)
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
    // What phases hold that are no longer in line, or may not begin with it.
    for (const by of this.line) {
      const areSound = [...by.held].every((need) => this.leaseOf(need).isSound)
      if (by.held.size > 0 && !(areSound && this.isInLine(by))) this.dropHeld(by)
    }
    const leases = [...this.leases]
    for (const [name, lease] of leases) {
      if (lease.isKey && lease.isIdle && !lease.isAsking) this.leases.delete(name)
      else void lease.keep()
    }
    if (leases.some(([, lease]) => !lease.isIdle)) this.watch()
  }
}
