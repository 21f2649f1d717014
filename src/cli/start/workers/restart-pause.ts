import type { Clock } from '../../../time/index.js'

const FIRST_MS = 1_000
const LONGEST_MS = 30_000
/** A worker that has run for this long did not fail to start. */
const STEADY_MS = 60_000

/** How long to wait before a worker that has ended is restarted: 1 s, 2 s, 4 s ... 30 s; 1 s again once it was up for a minute. */
export class RestartPause {
  /** The pause after its latest end. */
  ms = FIRST_MS
  private nextMs = FIRST_MS
  private startedAtMs: number

  constructor(private readonly clock: Clock) {
    this.startedAtMs = clock.monotonicMs()
  }

  started(): void {
    this.startedAtMs = this.clock.monotonicMs()
  }

  /** The worker has ended. @returns milliseconds until the next start */
  ended(): number {
    if (this.clock.monotonicMs() - this.startedAtMs >= STEADY_MS) this.nextMs = FIRST_MS
    this.ms = this.nextMs
    this.nextMs = Math.min(LONGEST_MS, this.ms * 2)
    return this.ms
  }
}
