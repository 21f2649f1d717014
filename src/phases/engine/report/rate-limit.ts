import type { Clock } from '../../../time/index.js'

/** Lets through `most` calls within any stretch of time: the bound of log lines that may come often. */
export class RateLimit {
  private times: number[] = []

  constructor(
    private readonly clock: Clock,
    private readonly most: number,
    private readonly withinMs: number,
  ) {}

  /** Returns true if one more may pass now; it then counts. */
  take(): boolean {
    const now = this.clock.monotonicMs()
    this.times = this.times.filter((at) => now - at < this.withinMs)
    if (this.times.length >= this.most) return false
    this.times.push(now)
    return true
  }
}
