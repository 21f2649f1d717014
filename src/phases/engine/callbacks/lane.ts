import { systemClock } from '../../../time/index.js'
import { StepSemaphore } from '../concurrency/step-semaphore.js'

/** The longest time that a call keeps its place: a quick one returns sooner. */
const KEEPS_MS = 250
/** The most calls that go aside in a millisecond, which bounds that time from below: 1,000 that hang go aside within a second. */
const ASIDE_PER_MS = 4
/** The most calls that run aside. */
const MOST_ASIDE = 1_500
/** The longest time that a call waits for a place. Then it is sent away, because another replica may have one. */
const WAITS_MOST_MS = 1_500

/**
 * A bulkhead between calls that return soon and calls that hang. A call begins in one of `concurrency` places. When it has kept the place for 250 ms,
 * it goes on aside, and the next call begins. That time is halved for each `concurrency` of calls that already run aside, because then the next call
 * may well hang.
 *
 * Invariant: a call waits only for calls that have just begun, unless 1,500 run aside. No more than `concurrency` + 1,500 run at the same time.
 */
export class Lane {
  private readonly semaphore: StepSemaphore
  private asideCount = 0

  constructor(private readonly concurrency: number) {
    this.semaphore = new StepSemaphore(concurrency, 0)
  }

  /** True if there is no place for another call. */
  get isFull(): boolean {
    return this.semaphore.takenCount >= this.concurrency
  }

  /** True if calls go aside sooner than after 250 ms, because many hang: a call that waits for a place gets one soon. */
  get passesOn(): boolean {
    return this.asideCount >= this.concurrency
  }

  /** Gives every call a place from now on. */
  open(): void {
    this.semaphore.open()
  }

  /**
   * Waits for a place.
   * @param onAside called when the call goes aside
   * @returns a function that ends the call's stay; undefined: there was no place within 1.5 s
   */
  async enter(onAside: () => void): Promise<(() => void) | undefined> {
    const sinceMs = systemClock.monotonicMs()
    const turn = this.semaphore.acquire('loop', sinceMs)
    if (turn) {
      setTimeout(() => this.semaphore.expire(sinceMs + 1), WAITS_MOST_MS).unref()
      if (!(await turn)) return undefined
    }
    let isAside = false
    const goAside = () => {
      if (this.asideCount >= MOST_ASIDE) {
        timer = setTimeout(goAside, KEEPS_MS)
        return
      }
      isAside = true
      this.asideCount += 1
      this.semaphore.release('loop')
      onAside()
    }
    let timer = setTimeout(goAside, this.keepsMs())
    return () => {
      clearTimeout(timer)
      if (isAside) this.asideCount -= 1
      else this.semaphore.release('loop')
    }
  }

  private keepsMs(): number {
    const ms = KEEPS_MS / 2 ** Math.floor(this.asideCount / this.concurrency)
    return Math.min(KEEPS_MS, Math.max(this.concurrency / ASIDE_PER_MS, ms))
  }
}
