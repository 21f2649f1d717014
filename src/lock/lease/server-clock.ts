import type { Clock } from '../../time/index.js'
import type { ClockHold } from '../terms/terms.js'
import { dueBoundAt } from './lease-state.js'

/** The amount that the clock may be off from one look to the next without having stepped: an election brings another member's clock. */
export const STEP_SLACK_MS = 2_000
/** A clock that is being slewed runs faster or slower by less than this. */
const MOST_DRIFT = 0.001

/** The server's clock moved by a different amount of time than has passed. */
export interface ClockStep {
  /** The amount that it is ahead of where it should be; below 0: it went back. */
  readonly ms: number
  /** The server's time after it. */
  readonly now: Date
}

/** Server time - own monotonic time, as narrowly as the answers so far bound it. */
interface Offset {
  readonly least: number
  readonly most: number
  readonly sentAtMs: number
}

/**
 * Finds steps of the server's clock by comparing the time that each look brings with the process's own monotonic clock; it
 * sends nothing itself.
 *
 * Invariant: a step of more than {@link STEP_SLACK_MS} is found by the first answer after it, and no step is found where there
 * was none: the server read its clock between the moments at which the command was sent and its answer arrived, so a slow answer
 * only widens the bounds. A monotonic clock that stood still (a suspended machine) looks like a forward step, which only holds
 * back what can wait.
 */
export class ClockSteps {
  private offset: Offset | undefined
  /** Forward steps that aren't confirmed, oldest first: each separately, so that a clock that keeps stepping holds up nothing forever. */
  private held: readonly (ClockHold & { readonly untilMs: number })[] = []
  private watchingSinceMs: number | undefined

  /** @param holdMs the time that a forward step has to last before it counts; 0: it counts immediately */
  constructor(
    private readonly clock: Clock,
    private readonly holdMs: number,
    private readonly onStep: (step: ClockStep) => void,
  ) {}

  /** A command that was sent at `sentAtMs` (monotonic) has just brought the server's time. */
  saw(now: Date, sentAtMs: number): void {
    const gotAtMs = this.clock.monotonicMs()
    const before = this.offset
    // It may be from before a step that is already known.
    if (before && sentAtMs < before.sentAtMs) return
    this.watchingSinceMs ??= sentAtMs
    const least = now.getTime() - gotAtMs
    const most = now.getTime() - sentAtMs
    this.offset = { least, most, sentAtMs }
    if (!before) return
    const driftMs = (gotAtMs - before.sentAtMs) * MOST_DRIFT
    const aheadMs = least - before.most - driftMs
    const behindMs = before.least - driftMs - most
    if (aheadMs <= 0 && behindMs <= 0) {
      const [lower, upper] = [before.least - driftMs, before.most + driftMs]
      this.offset = { least: Math.max(least, lower), most: Math.min(most, upper), sentAtMs }
    }
    if (aheadMs > STEP_SLACK_MS) this.steppedForward(now, most - before.least, gotAtMs - before.sentAtMs)
    else if (behindMs > STEP_SLACK_MS) this.steppedBack(now, before.most - least)
  }

  /** The steps that are held back now, as one. */
  hold(): (ClockHold & { readonly leftMs: number }) | undefined {
    if (this.held.length === 0) return undefined
    const nowMs = this.clock.monotonicMs()
    this.held = this.held.filter(({ untilMs }) => untilMs > nowMs)
    const last = this.held.at(-1)
    const ms = this.held.reduce((sum, step) => sum + step.ms, 0)
    return last && { ms, since: last.since, leftMs: last.untilMs - nowMs }
  }

  /**
   * Takes over a step that another replica saw `agoMs` milliseconds ago, unless this one was watching then.
   * @param leftMs the remaining time that it is to be held
   */
  adopt({ ms, now: since }: ClockStep, agoMs: number, leftMs: number): boolean {
    const { watchingSinceMs } = this
    const nowMs = this.clock.monotonicMs()
    const wasWatching = watchingSinceMs !== undefined && nowMs - watchingSinceMs > agoMs + STEP_SLACK_MS
    if (wasWatching || this.hold() || this.holdMs === 0) return false
    this.held = [{ ms, since, untilMs: nowMs + Math.min(leftMs, this.holdMs) }]
    return true
  }

  private steppedForward(now: Date, ms: number, unseenMs: number): void {
    // The step came after the last look at the earliest, and leases from before it now look older than the step is long.
    const since = new Date(now.getTime() - Math.min(unseenMs, ms - STEP_SLACK_MS))
    const untilMs = this.clock.monotonicMs() + this.holdMs
    this.held = [...this.held, { ms, since, untilMs }]
    this.onStep({ ms, now })
  }

  private steppedBack(now: Date, ms: number): void {
    // A step that was taken back no longer counts; the rest of it is still held.
    const held = [...this.held]
    for (let backMs = ms; held.length > 0 && backMs > 0; ) {
      const step = held.pop()!
      const leftMs = step.ms - backMs
      if (leftMs > STEP_SLACK_MS) held.push({ ...step, ms: leftMs, since: new Date(step.since.getTime() - backMs) })
      backMs = -leftMs
    }
    this.held = held
    this.onStep({ ms: -ms, now })
  }
}

const FRESH_FOR_MS = 60_000
/** The time after a reading of the server's clock, or of what is in force, for which commands may be judged by it. */
export const KNOWN_FOR_MS = 5_000

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

  /**
   * The rule for a command that ends leases of others, of documents, slots or outboxes: by the server's time, it ends none after this. A step of the
   * clock that no look has seen yet, or a delay on its way, may otherwise make live leases look over. Undefined before the first look.
   * @param mostMs for a shorter time than {@link KNOWN_FOR_MS}
   */
  validUntil(mostMs = KNOWN_FOR_MS): Date | undefined {
    const now = this.now()
    return now && new Date(now.getTime() + Math.min(KNOWN_FOR_MS, mostMs))
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
