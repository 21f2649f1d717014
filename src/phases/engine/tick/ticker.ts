import type { Clock } from '../../../time/index.js'

/**
 * Calls once in each period, at this replica's own offset within it, so that replicas spread their looks. A call that
 * still runs is not overlapped: that period is skipped.
 */
export class Ticker {
  private timer: NodeJS.Timeout | undefined
  private stopped = true

  constructor(
    private readonly clock: Clock,
    private readonly periodMs: number,
    private readonly offsetMs: number,
    private readonly tick: () => Promise<unknown>,
  ) {}

  start(): void {
    if (!this.stopped) return
    this.stopped = false
    this.schedule()
  }

  stop(): void {
    this.stopped = true
    clearTimeout(this.timer)
  }

  private schedule(): void {
    if (this.stopped) return
    const now = this.clock.now().getTime()
    const wait = this.periodMs - ((now - this.offsetMs) % this.periodMs)
    this.timer = setTimeout(() => void this.tick().finally(() => this.schedule()), wait)
  }
}
