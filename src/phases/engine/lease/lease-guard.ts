import type { DeadlineHold, Lease, Renewals } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { Held } from './held.js'
import { deadlineOf } from './held.js'

export interface LeaseGuardOptions {
  readonly renewals: Renewals
  readonly clock: Clock
  /** How long a lease lasts that is renewed now. */
  readonly leaseMs: () => number
  /** Rejects when it can't be known how long that is. */
  readonly keepTermsFresh: () => Promise<void>
  readonly stepTimeoutMs: number
  readonly progress: string
  readonly serverNow: () => Date
  readonly deadlineHold: () => DeadlineHold | undefined
  /** All that this replica holds of one lifecycle, in a step or not, and lost ones whose handlers run on. */
  readonly held: () => readonly Held[]
  /** Whether it is to be renewed. */
  readonly isHeld: (held: Held) => boolean
  readonly onLost: (held: Held) => void
  readonly onError: (error: unknown) => void
}

/**
 * Watches over what a replica holds: renews its leases, and asks steps to stop that have run too long or whose lease is in
 * danger. One timer for all, running only while something is held.
 *
 * A lease is renewed every third of lockTimeout; at two thirds without a renewal that succeeded its step's signal aborts.
 * A step past its timeout (or deadline) is asked to stop, renewed for one more lockTimeout, and then given up: never in the round that asks
 * it, so that a pause of this process leaves it its grace.
 */
export class LeaseGuard {
  private timer: NodeJS.Timeout | undefined
  private renewing = false

  constructor(private readonly options: LeaseGuardOptions) {}

  /** To be called when something is held; the guard stops by itself when nothing is. */
  watch(): void {
    if (this.timer) return
    this.timer = setTimeout(() => this.round(), this.intervalMs())
  }

  stop(): void {
    clearTimeout(this.timer)
    this.timer = undefined
  }

  private intervalMs(): number {
    return Math.min(1_000, Math.max(20, this.options.leaseMs() / 12))
  }

  private round(): void {
    this.timer = undefined
    const held = this.options.held()
    if (held.length === 0) return
    for (const one of held) this.check(one)
    void this.renewAging(held)
    this.watch()
  }

  private check(held: Held): void {
    const { run } = held
    if (!run) return
    // Of a lease that was taken before lockTimeout became shorter it is the longer one, until it is renewed.
    const { lastsMs } = held.lease
    const isTimedOut = run.ranMs() >= this.options.stepTimeoutMs
    if (held.lease.ageMs() > (lastsMs * 2) / 3) run.abort('lease in danger')
    if (!isTimedOut && this.pastDeadlineMs(held) < 0) return
    run.abort(isTimedOut ? 'step timeout' : 'deadline')
    run.ranOver(lastsMs)
  }

  private pastDeadlineMs(held: Held): number {
    const deadline = deadlineOf(held, this.options.progress, this.options.deadlineHold())
    return deadline ? this.options.serverNow().getTime() - deadline.getTime() : Number.NEGATIVE_INFINITY
  }

  private async renewAging(held: readonly Held[]): Promise<void> {
    const thirdMs = this.options.leaseMs() / 3 - this.intervalMs()
    const aging = held.filter((one) => one.lease.ageMs() >= thirdMs && this.options.isHeld(one))
    if (this.renewing || aging.length === 0) return
    this.renewing = true
    try {
      await this.options.keepTermsFresh()
      const lost = new Set<Lease>(await this.options.renewals.renew(aging.map((one) => one.lease)))
      for (const one of aging) if (lost.has(one.lease)) this.options.onLost(one)
    } catch (error) {
      this.options.onError(error)
    } finally {
      this.renewing = false
    }
  }
}
