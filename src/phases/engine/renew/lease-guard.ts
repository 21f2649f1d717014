import { type Lease, Renewals } from '../../../lock/index.js'
import type { OutageLog } from '../../reporting/bounded-log.js'
import type { StepSemaphore } from '../concurrency/step-semaphore.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import type { HeldDocuments } from '../lease/held.js'
import { deadlineOf, type Held } from '../lease/held.js'
import { reportLoss } from '../run/step-runner.js'

/** The time after which a document that was claimed and has not begun is let go: its places may hang, while another replica has room. */
const QUEUED_MOST_MS = 1_500

/**
 * Watches over the documents of one lifecycle that a replica holds: renews its leases, and asks steps to stop that have run too long or whose lease
 * is in danger. It also watches lost documents whose handlers still run. One timer for all, running only while something is held.
 *
 * A lease is renewed every third of lockTimeout; at two thirds without a successful renewal its step's signal aborts. A step past its timeout (or
 * deadline) is asked to stop, renewed for one more lockTimeout, and then given up: never in the round that asked it, so that a pause of this process
 * doesn't cost it its grace.
 */
export class LeaseGuard {
  private readonly renewals: Renewals
  private timer: NodeJS.Timeout | undefined
  private renewing = false

  constructor(
    private readonly env: LifecycleEnvironment,
    private readonly held: HeldDocuments,
    private readonly semaphore: StepSemaphore,
    private readonly outage: OutageLog,
  ) {
    this.renewals = new Renewals(env.renewalCollection, env.terms, env.clock)
  }

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
    return Math.min(1_000, Math.max(20, this.env.terms().leaseMs / 12))
  }

  private round(): void {
    this.timer = undefined
    const held = this.held.all()
    if (held.length === 0) return
    for (const one of held) this.check(one)
    this.semaphore.expire(this.env.clock.monotonicMs() - QUEUED_MOST_MS)
    void this.renewAging(held)
    this.watch()
  }

  private check(held: Held): void {
    const { run } = held
    if (!run) return
    // A lease taken before lockTimeout was shortened lasts for the longer time, until it is renewed.
    const isTimedOut = run.ranMs() >= this.env.model.settings.stepTimeoutMs
    const isInDanger = held.lease.isInDanger() || this.env.limitLeases.areInDanger(held)
    if (isInDanger) run.abort('lease in danger')
    if (!isTimedOut && !this.isPastDeadline(held)) return
    run.abort(isTimedOut ? 'step timeout' : 'deadline')
    run.ranOver(held.lease.lastsMs)
  }

  private isPastDeadline(held: Held): boolean {
    const { model, serverClock, serverNow } = this.env
    const deadline = deadlineOf(held, model.settings.progress, serverClock.deadlineHold())
    return deadline !== null && serverNow() >= deadline
  }

  private async renewAging(held: readonly Held[]): Promise<void> {
    const { leaseMs } = this.env.terms()
    const aging = held.filter((one) => one.lease.isAging(leaseMs, this.intervalMs()) && this.held.has(one))
    if (this.renewing || aging.length === 0) return
    this.renewing = true
    try {
      await this.env.keepTermsFresh()
      const lost = new Set<Lease>(await this.renewals.renew(aging.map((one) => one.lease)))
      for (const one of aging) {
        if (!lost.has(one.lease) || !this.held.has(one)) continue
        if (one.run && !one.run.aborted) reportLoss(this.env, one, 'renewal')
        one.run?.abort('lease lost')
      }
    } catch (error) {
      this.outage.failed(error)
    } finally {
      this.renewing = false
    }
  }
}
