import { performance } from 'node:perf_hooks'

/** Looks often enough to miss nothing that is longer, and rarely enough to cost nothing: reading the loop's utilisation takes 0.5 us (measured). */
const LOOKS_PER_LIMIT = 2
const LEAST_EVERY_MS = 10

/**
 * Notices when the event loop of this process didn't turn for a while. A beat that comes late tells it; time that the loop spent
 * asleep, because the process was paused, doesn't count.
 */
export class LoopWatch {
  private timer: NodeJS.Timeout | undefined
  private dueMs = 0
  private activeMs = 0

  /**
   * @param limitMs what is shorter isn't told
   * @param onBeat called with each beat: for how long the loop was blocked at least, undefined: it wasn't
   */
  constructor(
    private readonly limitMs: number,
    private readonly onBeat: (blockedMs: number | undefined) => void,
  ) {}

  start(): void {
    if (this.timer) return
    this.activeMs = performance.eventLoopUtilization().active
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
    const blockedMs = Math.min(lateMs, busyMs)
    this.arm()
    this.onBeat(blockedMs >= this.limitMs ? blockedMs : undefined)
  }
}
