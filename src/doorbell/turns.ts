/** A rate: a burst of `burst` turns, then `perSecond`; at most their sum in any second. */
export interface Pace {
  readonly burst: number
  readonly perSecond: number
}

/** At most 20 in any second; a single one needn't wait, in a storm they are 62 ms apart. */
export const RING_PACE: Pace = { burst: 4, perSecond: 16 }

/** Gives out turns at a pace. With RING_PACE from a full start: a burst of four, then one after 62, 125, 187, ... ms. */
export class Turns {
  /** The turns left; below 0 if turns were promised ahead of time. */
  private left: number
  private atMs = 0

  constructor(private readonly pace: Pace) {
    this.left = pace.burst
  }

  /** Takes a turn. @returns the milliseconds to wait for it */
  take(nowMs: number): number {
    const { burst, perSecond } = this.pace
    this.left = Math.min(burst, this.left + ((nowMs - this.atMs) * perSecond) / 1_000) - 1
    this.atMs = nowMs
    return this.left >= 0 ? 0 : (-this.left * 1_000) / perSecond
  }
}
