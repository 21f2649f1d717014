import type { Clock } from '../../../time/index.js'

const HORIZON_MS = 30_000
const BUCKET_MS = 50

/**
 * Local timers for what this replica knows to come due, so that a wait that ends in 0.1 s is resumed in 0.1 s and not at the next full
 * second. Only a hint: the next tick finds what they miss, and the server's clock judges what is due.
 */
export class Wakeups {
  private readonly timers = new Map<string, NodeJS.Timeout>()
  /** By phase. */
  private readonly retries = new Map<string, { readonly atMs: number; readonly timer: NodeJS.Timeout }>()

  constructor(
    private readonly clock: Clock,
    private readonly wake: (phase: string) => void,
  ) {}

  /** Wakes once for all that comes due within the same 50 ms. */
  in(phase: string, ms: number): void {
    if (ms > HORIZON_MS) return
    const atMs = this.bucketAfter(ms)
    const key = `${atMs} ${phase}`
    if (this.timers.has(key)) return
    this.timers.set(
      key,
      this.at(atMs, phase, () => this.timers.delete(key)),
    )
  }

  /** Wakes to try again: once for each phase, at the soonest time, as each try in vain calls for the next. */
  retry(phase: string, ms: number): void {
    if (ms > HORIZON_MS) return
    const atMs = this.clock.monotonicMs() + Math.max(ms, BUCKET_MS)
    const known = this.retries.get(phase)
    if (known && known.atMs <= atMs) return
    clearTimeout(known?.timer)
    this.retries.set(phase, { atMs, timer: this.at(atMs, phase, () => this.retries.delete(phase)) })
  }

  /** There is nothing to try again for. */
  noRetry(phase: string): void {
    clearTimeout(this.retries.get(phase)?.timer)
    this.retries.delete(phase)
  }

  private bucketAfter(ms: number): number {
    return (Math.ceil((this.clock.monotonicMs() + ms) / BUCKET_MS) + 1) * BUCKET_MS
  }

  private at(atMs: number, phase: string, before: () => void): NodeJS.Timeout {
    const wake = () => {
      before()
      this.wake(phase)
    }
    return setTimeout(wake, atMs - this.clock.monotonicMs()).unref()
  }

  stop(): void {
    for (const { timer } of this.retries.values()) clearTimeout(timer)
    this.retries.clear()
    for (const timer of this.timers.values()) clearTimeout(timer)
    this.timers.clear()
  }
}
