import type { Clock } from '../../time/index.js'

/** A phase whose claims are in time again with this many documents is as fast as any. */
const FAST_ENOUGH = 1_000
/** The part of a lease within which a claim is in time: a slower one's leases are renewed only once it is over. */
const IN_TIME_PART = 1 / 3
/** The number of claims in time after which the next one may be twice as large. */
const IN_TIME = 8

/** The number of documents that a claim of a phase takes: half after one that wasn't in time, down to a single one. */
export class ClaimPace {
  /** By phase, if its claims haven't been in time lately: the most documents in one. */
  private readonly slow = new Map<string, { readonly most: number; readonly inTime: number }>()
  private hasFailed = false

  constructor(private readonly clock: Clock) {}

  /** The most documents of one claim. Infinity: no limit. */
  most(phase: string): number {
    return this.slow.get(phase)?.most ?? Number.POSITIVE_INFINITY
  }

  /** A command of the claim that is under way has failed, or its outcome is unknown. */
  failed(): void {
    this.hasFailed = true
  }

  async timed<T>(phase: string, documents: number, leaseMs: number, claim: () => Promise<T>): Promise<T> {
    const sentAtMs = this.clock.monotonicMs()
    this.hasFailed = false
    let isInTime = false
    try {
      const result = await claim()
      isInTime = !this.hasFailed && this.clock.monotonicMs() - sentAtMs <= leaseMs * IN_TIME_PART
      return result
    } finally {
      this.took(phase, documents, isInTime)
    }
  }

  /** Learns from a claim. A timeout costs far more than a small claim, so a larger one is seldom tried. */
  private took(phase: string, documents: number, isInTime: boolean): void {
    const slow = this.slow.get(phase)
    if (!isInTime) this.slow.set(phase, { most: Math.max(1, Math.floor(documents / 2)), inTime: 0 })
    else if (slow && slow.most >= FAST_ENOUGH) this.slow.delete(phase)
    else if (slow && documents >= slow.most) {
      const inTime = slow.inTime + 1
      this.slow.set(phase, inTime < IN_TIME ? { ...slow, inTime } : { most: slow.most * 2, inTime: 0 })
    }
  }
}
