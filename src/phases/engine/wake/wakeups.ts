import type { Clock } from '../../../time/index.js'

const HORIZON_MS = 30_000
const BUCKET_MS = 50

/**
 * Local timers for what this replica knows to come due, so that a wait that ends in 0.1 s is resumed in 0.1 s and not at the next full
 * second. Only a hint: the next tick finds what they miss, and the server's clock judges what is due.
 */
export class Wakeups {
  private readonly timers = new Map<string, NodeJS.Timeout>()

  constructor(
    private readonly clock: Clock,
    private readonly wake: (phase: string) => void,
  ) {}

  /** Wakes once for all that comes due within the same 50 ms. */
  in(phase: string, ms: number): void {
    if (ms > HORIZON_MS) return
    const now = this.clock.monotonicMs()
    const bucket = Math.ceil((now + ms) / BUCKET_MS) + 1
    const key = `${bucket} ${phase}`
    if (this.timers.has(key)) return
    const wake = () => {
      this.timers.delete(key)
      this.wake(phase)
    }
    this.timers.set(key, setTimeout(wake, bucket * BUCKET_MS - now).unref())
  }

  stop(): void {
    for (const timer of this.timers.values()) clearTimeout(timer)
    this.timers.clear()
  }
}
