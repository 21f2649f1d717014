import { AsyncLocalStorage } from 'node:async_hooks'
import { Mutex } from '../concurrency/index.js'
import { type Clock, sleep } from '../time/index.js'
import { type LockDuration, lockDurationMs } from './durations.js'
import { InvalidLockConfig, LockLost, StaleLockHandle } from './errors.js'
import { HeldLook } from './held-look.js'
import type { LockProvider, SimpleLock } from './lock-provider.js'

/** One day: timers can't run for longer than 24.8 days. */
const LONGEST_SLEEP_MS = 86_400_000

/** The locks of a call path, innermost last. */
export const activeLocks = new AsyncLocalStorage<readonly ActiveLock[]>()

/**
 * One lock while its task runs. Invariant: `signal` has aborted before another caller can have the lease, by this process's
 * monotonic clock, counted from before the last command that held it was sent. A paused process sees the abort when it resumes. If the
 * lease was ended by hand, it aborts as soon as a check finds that.
 */
export class ActiveLock {
  private readonly lost = new AbortController()
  private readonly done = new AbortController()
  private moved = new AbortController()
  /** Extensions run one after the other: if two answers crossed, this process might believe in the longer lease while the store has the shorter. */
  private readonly extending = new Mutex()

  constructor(
    /** The provider that granted it: the same name in two providers is two locks. */
    readonly provider: LockProvider,
    /** Replaced by each extension. */
    private lock: SimpleLock,
    private leaseMs: number,
    /** The time at which the last command was sent that made it ours for `leaseMs`. */
    private heldSinceMs: number,
    private readonly watchdogMs: number | undefined,
    private readonly clock: Clock,
  ) {}

  /** The lock's name, as in its LockConfig. */
  get name(): string {
    return this.lock.name
  }

  /** The acquisition with its current end. */
  get current(): SimpleLock {
    return this.lock
  }

  /** Aborts with LockLost. */
  get signal(): AbortSignal {
    return this.lost.signal
  }

  /** True if it has neither ended nor been lost, as far as this process can know. */
  get isHeld(): boolean {
    if (this.done.signal.aborted) return false
    if (this.ageMs >= this.leaseMs) this.lose()
    return !this.lost.signal.aborted
  }

  /** @throws LockLost, and the signal aborts, if it is no longer ours; LockProviderUnavailable; InvalidLockConfig */
  extend(lockAtMostFor: LockDuration, lockAtLeastFor?: LockDuration): Promise<void> {
    return this.extending.run(() => this.extendNow(lockAtMostFor, lockAtLeastFor))
  }

  private async extendNow(lockAtMostFor: LockDuration, lockAtLeastFor: LockDuration | undefined): Promise<void> {
    if (!this.isHeld) throw new LockLost(this.name)
    const sentAtMs = this.clock.monotonicMs()
    const longer = await this.lock.extend(lockAtMostFor, lockAtLeastFor).catch((error: unknown) => {
      this.mayHaveShortened(error, sentAtMs, lockAtMostFor)
      throw error
    })
    if (!longer) {
      this.lose()
      throw new LockLost(this.name)
    }
    this.lock = longer
    this.leaseIs(lockDurationMs(lockAtMostFor), sentAtMs)
  }

  /** There was no answer, and the server may have extended it: the lease then ends at the sooner of the two times. */
  private mayHaveShortened(error: unknown, sentAtMs: number, lockAtMostFor: LockDuration): void {
    if (error instanceof InvalidLockConfig) return
    const ms = lockDurationMs(lockAtMostFor)
    if (sentAtMs + ms < this.heldSinceMs + this.leaseMs) this.leaseIs(ms, sentAtMs)
  }

  private leaseIs(ms: number, sinceMs: number): void {
    this.heldSinceMs = sinceMs
    this.leaseMs = ms
    this.moved.abort()
    this.moved = new AbortController()
  }

  /** Never waits for an unanswered extension. */
  async unlock(): Promise<boolean> {
    try {
      return await this.lock.unlock()
    } catch (error) {
      if (!(error instanceof StaleLockHandle)) throw error
      // An extension was answered a moment ago.
      await this.extending.idle()
      return await this.lock.unlock()
    }
  }

  /** Watches over the lease until `end`; never throws. */
  watch(onFailure: (error: unknown) => void): void {
    void this.watchEnd()
    HeldLook.of(this.provider).add(this)
    if (this.watchdogMs !== undefined) void this.keepAlive(this.watchdogMs, onFailure)
  }

  /** Ends the extensions: the task has ended. */
  end(): void {
    this.done.abort()
    HeldLook.of(this.provider).remove(this)
  }

  private get ageMs(): number {
    return this.clock.monotonicMs() - this.heldSinceMs
  }

  /** With a watchdog the last third of the lease is left for the task to stop; without one the task has the whole lease. */
  private get stopAfterMs(): number {
    return this.watchdogMs === undefined ? this.leaseMs : (this.leaseMs * 2) / 3
  }

  private async watchEnd(): Promise<void> {
    while (!this.isOver) {
      const leftMs = this.stopAfterMs - this.ageMs
      if (leftMs <= 0) return this.lose()
      await this.pause(leftMs)
    }
  }

  private async keepAlive(watchdogMs: number, onFailure: (error: unknown) => void): Promise<void> {
    let failed = false
    while (!this.isOver) {
      const everyMs = Math.min(watchdogMs, this.leaseMs / 3)
      await this.pause(failed ? everyMs / 10 : everyMs - this.ageMs)
      if (!this.isHeld) return
      // A timer may be a millisecond early; another extension restarts the count.
      if (!failed && this.ageMs < everyMs - 1) continue
      try {
        await this.extend(`${this.leaseMs}ms`)
        failed = false
      } catch (error) {
        failed = true
        if (!this.done.signal.aborted) onFailure(error)
      }
    }
  }

  private get isOver(): boolean {
    return this.done.signal.aborted || this.lost.signal.aborted
  }

  /** Ends early when the task ends, the lock is lost or another extension has moved the lease. */
  private pause(ms: number): Promise<void> {
    const signal = AbortSignal.any([this.done.signal, this.lost.signal, this.moved.signal])
    return sleep(Math.min(Math.max(1, ms), LONGEST_SLEEP_MS), { signal, unref: true })
  }

  /** Marks it as no longer ours. */
  lose(): void {
    if (this.isOver) return
    HeldLook.of(this.provider).remove(this)
    this.lost.abort(new LockLost(this.name))
  }
}
