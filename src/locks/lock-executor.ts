import { tellObservers } from '../observers/index.js'
import { type Clock, sleep, systemClock } from '../time/index.js'
import { ActiveLock, activeLocks } from './active-lock.js'
import type { LockDuration } from './durations.js'
import { InvalidLockConfig } from './errors.js'
import { type CheckedLockConfig, checkedLockConfig, type LockConfig, msOf } from './lock-config.js'
import { type LockEvent, type LockObserver, ofAllExecutors } from './lock-observer.js'
import type { LockProvider, SimpleLock } from './lock-provider.js'

/** The configuration of `executeWithLock`: the lock's own, and how to run the task. */
export interface ExecutionConfig extends LockConfig {
  /**
   * Extends the lock while the task runs, each time by lockAtMostFor from that moment: after every third of it (`true`), or at this
   * interval (at most half of it). Default false: the task has lockAtMostFor.
   */
  readonly watchdog?: boolean | LockDuration | undefined
  /** The time to wait for a lock that another caller holds. Default '0s': no wait. */
  readonly waitFor?: LockDuration | undefined
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined
}

/** The lock as seen by the task that runs under it. */
export interface HeldLockContext {
  /** The lock's name, as in its LockConfig. */
  readonly name: string
  /** The token of this acquisition, stored in the lock's record while it is held: {@link SimpleLock.lockedBy}. */
  readonly lockedBy: string
  /** The fencing token: pass it to every system the task changes, which should refuse a lower one. */
  readonly fence: number
  /** Aborts with LockLost before the lock ends and another caller can take it. If it was freed by hand, aborts within a second. Stop then. */
  readonly signal: AbortSignal
  /** @throws LockLost, LockProviderUnavailable, InvalidLockConfig */
  extend(lockAtMostFor: LockDuration, lockAtLeastFor?: LockDuration): Promise<void>
}

/**
 * The outcome of `executeWithLock`. `heldBy` and `until` are the store's answer after the refusal. They are undefined if the store couldn't
 * answer or if no one holds the lock: it was freed since, or it was granted to us by an answer that took as long as lockAtMostFor.
 */
export type ExecutionResult<R> =
  | {
      /** The task ran under the lock, to its end. */
      readonly executed: true
      /** The return value of the task. */
      readonly result: R
    }
  | {
      /** The lock wasn't granted within `waitFor`, and the task didn't run. */
      readonly executed: false
      /** The holder's token, which begins with the name of its process. */
      readonly heldBy: string | undefined
      /** The time at which the lock ends unless it is extended, in server time. */
      readonly until: Date | undefined
    }

const LEAST_PAUSE_MS = 20
const MOST_PAUSE_MS = 1_000

/** Runs tasks under named locks. By default it doesn't wait for a lock. */
export class LockExecutor {
  private readonly observers: readonly LockObserver[]
  private readonly clock: Clock

  /**
   * @param options.observer one or several, notified of what this executor does
   * @param options.clock for tests: measures waits and the age of leases
   */
  constructor(
    /** Grants the locks. Closing it is up to the code that opened it. */
    readonly provider: LockProvider,
    options: {
      readonly observer?: LockObserver | readonly LockObserver[] | undefined
      readonly clock?: Clock | undefined
    } = {},
  ) {
    this.observers = [options.observer ?? []].flat()
    this.clock = options.clock ?? systemClock
  }

  /**
   * Runs the task if the lock is available, and unlocks when the task has ended, however it ends. On a call path that already holds this
   * lock the task runs under that acquisition. A failed unlock is reported to the observer; the lock then expires.
   * @throws the task's own error; LockProviderUnavailable (then nothing was run), InvalidLockConfig
   */
  async executeWithLock<R>(
    task: (held: HeldLockContext) => R | Promise<R>,
    config: ExecutionConfig,
  ): Promise<ExecutionResult<R>> {
    const checked = checkedExecution(config)
    const outer = this.heldOnThisPath(checked.name)
    if (outer) return { executed: true, result: await task(contextOf(outer)) }
    const startedMs = this.clock.monotonicMs()
    const granted = await this.obtain(config, checked, startedMs)
    if (typeof granted === 'string') return await this.refused(checked.name, granted, startedMs)
    const { lock, sentAtMs } = granted
    const { name, lockedBy, fence } = lock
    this.tell('acquired', { name, lockedBy, fence, waitedMs: this.clock.monotonicMs() - startedMs })
    return { executed: true, result: await this.run(task, lock, checked, sentAtMs) }
  }

  private async run<R>(
    task: (held: HeldLockContext) => R | Promise<R>,
    lock: SimpleLock,
    { lockAtMostForMs, watchdogMs }: CheckedExecution,
    sentAtMs: number,
  ): Promise<R> {
    const { name, lockedBy } = lock
    const active = new ActiveLock(this.provider, lock, lockAtMostForMs, sentAtMs, watchdogMs, this.clock)
    const startedMs = this.clock.monotonicMs()
    let failed = true
    active.signal.addEventListener('abort', () => this.tell('lost', { name, lockedBy }), { once: true })
    active.watch((error) => this.tell('failed', { name, action: 'extend', error }))
    try {
      const path = [...(activeLocks.getStore() ?? []), active]
      const result = await activeLocks.run(path, async () => await task(contextOf(active)))
      failed = false
      return result
    } finally {
      active.end()
      this.tell('finished', { name, lockedBy, ms: this.clock.monotonicMs() - startedMs, failed })
      await this.unlock(active)
    }
  }

  /** Never throws: the task has ended, and its outcome is the one that counts. */
  private async unlock(active: ActiveLock): Promise<void> {
    const { name, lockedBy } = active.current
    try {
      const wasOurs = await active.unlock()
      if (!wasOurs && !active.signal.aborted) this.tell('lost', { name, lockedBy })
    } catch (error) {
      this.tell('failed', { name, action: 'unlock', error })
    }
  }

  /** @returns the lock, or the reason for the refusal if another caller holds it */
  private async obtain(config: ExecutionConfig, checked: CheckedExecution, startedMs: number) {
    const { name, lockAtMostFor, lockAtLeastFor, reentry } = config
    for (let pauseMs = LEAST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 1.5, MOST_PAUSE_MS)) {
      const sentAtMs = this.clock.monotonicMs()
      const lock = await this.provider
        .lock({ name, lockAtMostFor, lockAtLeastFor, reentry })
        .catch((error: unknown) => {
          this.tell('unavailable', { name, waitedMs: this.clock.monotonicMs() - startedMs, error })
          throw error
        })
      if (lock) return { lock, sentAtMs }
      const leftMs = checked.waitForMs - (this.clock.monotonicMs() - startedMs)
      if (leftMs <= 0) return checked.waitForMs > 0 ? 'timedOut' : 'held'
      if (config.signal?.aborted) return 'aborted'
      const jittered = pauseMs * (0.75 + Math.random() / 2)
      await sleep(Math.min(leftMs, jittered), config.signal ? { signal: config.signal } : {})
    }
  }

  private async refused(
    name: string,
    why: LockEvent<'notAcquired'>['why'],
    startedMs: number,
  ): Promise<ExecutionResult<never>> {
    const waitedMs = this.clock.monotonicMs() - startedMs
    const record = await this.provider.find?.(name).catch(() => undefined)
    const heldBy = record?.held ? record.lockedBy : undefined
    this.tell('notAcquired', { name, heldBy, waitedMs, why })
    return { executed: false, heldBy, until: record?.held ? record.lockUntil : undefined }
  }

  /** Ignores a lock that was lost, or whose task has ended while this code still runs. */
  private heldOnThisPath(name: string): ActiveLock | undefined {
    return activeLocks.getStore()?.findLast((one) => one.name === name && one.provider === this.provider && one.isHeld)
  }

  private tell<K extends keyof LockObserver>(what: K, event: LockEvent<K>): void {
    // An observer's error doesn't affect the executor.
    tellObservers([...this.observers, ...ofAllExecutors], what, event, () => undefined)
  }
}

interface CheckedExecution extends CheckedLockConfig {
  readonly waitForMs: number
  readonly watchdogMs: number | undefined
}

/** @throws InvalidLockConfig */
export function checkedExecution(config: ExecutionConfig): CheckedExecution {
  const checked = checkedLockConfig(config, ['watchdog', 'waitFor', 'signal'])
  const { waitFor = '0s', watchdog = false } = config
  const { name, lockAtMostForMs } = checked
  const problems: string[] = []
  const waitForMs = msOf('waitFor', waitFor, problems) ?? 0
  if (waitForMs < 0) problems.push(`waitFor: expected 0 or more, got ${waitForMs} ms`)
  const isGiven = typeof watchdog !== 'boolean'
  const watchdogMs = isGiven ? msOf('watchdog', watchdog, problems) : watchdog ? lockAtMostForMs / 3 : undefined
  if (watchdogMs !== undefined && !(watchdogMs > 0 && watchdogMs <= lockAtMostForMs / 2))
    problems.push(
      `watchdog: expected true, or more than 0 and at most half of lockAtMostFor (${lockAtMostForMs / 2} ms), got ${watchdogMs} ms`,
    )
  if (problems.length > 0) throw new InvalidLockConfig(`'${name}'`, problems)
  return { ...checked, waitForMs, watchdogMs }
}

function contextOf(active: ActiveLock): HeldLockContext {
  const { name, current, signal } = active
  return {
    name,
    lockedBy: current.lockedBy,
    fence: current.fence,
    signal,
    extend: (lockAtMostFor, lockAtLeastFor) => active.extend(lockAtMostFor, lockAtLeastFor),
  }
}
