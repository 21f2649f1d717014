import type { Clock } from '../../time/index.js'
import type { ClockHold, ClockSteps } from '../terms/clock-steps.js'
import { dueBoundAt } from './lease-state.js'

const FRESH_FOR_MS = 60_000

/** A hold on deadlines: one passes when it would have without the step, or when the step is confirmed (server time), whichever comes first. */
export interface DeadlineHold {
  readonly ms: number
  readonly until: Date
}

/** When a deadline passes; the same where nothing is held. */
export function underHold(deadline: Date, hold: DeadlineHold | undefined): Date {
  if (!hold) return deadline
  const ms = deadline.getTime()
  return new Date(Math.min(ms + hold.ms, Math.max(ms, hold.until.getTime())))
}

/**
 * A replica's knowledge of the server's clock: the time that its last look brought, and its own monotonic time since. Used only as
 * a bound that saves reading keys, never to decide who holds a document.
 */
export class ServerClock {
  private seen: { server: number; sentAtMs: number } | undefined

  /** @param steps is notified of each time that is seen */
  constructor(
    private readonly clock: Clock,
    private readonly steps?: ClockSteps,
  ) {}

  /** @param sentAtMs monotonic time before the command was sent, so that the estimate is never behind the server */
  saw(now: Date, sentAtMs: number): void {
    this.steps?.saw(now, sentAtMs)
    this.seen = { server: now.getTime(), sentAtMs }
  }

  /** A forward step of the server's clock that isn't confirmed yet. */
  hold(): ClockHold | undefined {
    return this.steps?.hold()
  }

  /** The hold on deadlines while such a step isn't confirmed. */
  deadlineHold(): DeadlineHold | undefined {
    const hold = this.steps?.hold()
    const now = this.now()
    return hold && now && { ms: hold.ms, until: new Date(now.getTime() + hold.leftMs) }
  }

  /** An estimate of the server's time, never behind it; undefined before the first look. */
  now(): Date | undefined {
    return this.seen && new Date(this.seen.server + this.clock.monotonicMs() - this.seen.sentAtMs)
  }

  /**
   * The bound of due documents: none with `lockedAt` at or after it is due: now - lockTimeout + 1 s. Undefined if nothing was seen
   * for a minute: a stale bound would hide documents that have come due.
   */
  dueBound(lockTimeoutMs: number): Date | undefined {
    if (!this.seen || this.clock.monotonicMs() - this.seen.sentAtMs > FRESH_FOR_MS) return undefined
    return dueBoundAt(this.now()!, lockTimeoutMs)
  }
}
