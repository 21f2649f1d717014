import type { Clock } from '../../src/time/index.js'

/** A clock that stands still until a test moves it on. */
export class ManualClock implements Clock {
  private ms = 1_000_000

  now(): Date {
    return new Date(this.ms)
  }

  monotonicMs(): number {
    return this.ms
  }

  pass(ms: number): void {
    this.ms += ms
  }
}
