import { performance } from 'node:perf_hooks'
import { cpuWaitMs } from './cpu-wait.js'

/** Often enough to miss nothing above the limit, and rarely enough to cost nothing: reading the loop's utilization takes 0.5 us (measured). */
const LOOKS_PER_LIMIT = 2
const LEAST_EVERY_MS = 10

/** The event loop didn't turn. */
export interface LoopStop {
  /** The least time that it lasted. */
  readonly ms: number
  /** The part of that time that this thread spent waiting for a processor: nothing that runs on the loop caused that. */
  readonly withoutCpuMs: number
}

/**
 * Notices when this process's event loop didn't turn for a while, by a beat that comes late. Time that the loop spent asleep,
 * because the process was paused, doesn't count.
 */
export class LoopWatch {
  /** The longest time without a turn of the loop, however short, since a caller last set it to 0. */
  longestMs = 0
  private timer: NodeJS.Timeout | undefined
  private dueMs = 0
  private activeMs = 0
  private waitedMs = 0

  /**
   * @param limitMs shorter stops aren't reported
   * @param onBeat called on each beat; undefined: the loop wasn't blocked
   * @param cpuWait how long this thread has waited for a processor so far
   */
  constructor(
    private readonly limitMs: number,
    private readonly onBeat: (stop: LoopStop | undefined) => void,
    private readonly cpuWait: () => number = cpuWaitMs,
  ) {}

  start(): void {
    if (this.timer) return
    this.activeMs = performance.eventLoopUtilization().active
    this.waitedMs = this.cpuWait()
    this.arm()
  }

  stop(): void {
    clearTimeout(this.timer)
    this.timer = undefined
  }

  private arm(): void {
    const everyMs = Math.max(LEAST_EVERY_MS, this.limitMs / LOOKS_PER_LIMIT)
    this.dueMs = performance.now() + everyMs
    this.timer = setTimeout(() => this.beat(), everyMs).unref()
  }

  private beat(): void {
    const lateMs = performance.now() - this.dueMs
    const { active } = performance.eventLoopUtilization()
    const busyMs = active - this.activeMs
    this.activeMs = active
    const waitedMs = this.cpuWait()
    const waitMs = waitedMs - this.waitedMs
    this.waitedMs = waitedMs
    const blockedMs = Math.min(lateMs, busyMs)
    this.longestMs = Math.max(this.longestMs, blockedMs)
    this.arm()
    this.onBeat(blockedMs >= this.limitMs ? { ms: blockedMs, withoutCpuMs: Math.min(blockedMs, waitMs) } : undefined)
  }
}
