import type { Clock } from '../time/index.js'

const FRESH_FOR_MS = 60_000
const SLACK_MS = 1_000

/**
 * What a replica knows of the server's clock: the time that its last look brought, and its own monotonic time since. Used
 * only as a bound that spares keys, never to decide who holds what.
 */
export class ServerClock {
  private seen: { server: number; sentAtMs: number } | undefined

  constructor(private readonly clock: Clock) {}

  /** @param sentAtMs monotonic time before the command was sent, so that the estimate is never behind the server */
  saw(now: Date, sentAtMs: number): void {
    this.seen = { server: now.getTime(), sentAtMs }
  }

  /** The server's time by estimate, never behind it; undefined before the first look. */
  now(): Date | undefined {
    return this.seen && new Date(this.seen.server + this.clock.monotonicMs() - this.seen.sentAtMs)
  }

  /**
   * No document with `lockedAt` at or after this is due: now - lockTimeout + 1 s. Undefined when nothing was seen for a
   * minute: a bound without the time since would hide documents that have come due.
   */
  dueBound(lockTimeoutMs: number): Date | undefined {
    if (!this.seen || this.clock.monotonicMs() - this.seen.sentAtMs > FRESH_FOR_MS) return undefined
    return new Date(this.now()!.getTime() - lockTimeoutMs + SLACK_MS)
  }
}
