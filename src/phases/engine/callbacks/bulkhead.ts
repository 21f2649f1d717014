import { systemClock } from '../../../time/index.js'
import { PrefetchTarget } from '../concurrency/prefetch-target.js'
import { StepSemaphore } from '../concurrency/step-semaphore.js'

/** The longest time that a call keeps its place: a quick one returns sooner. */
const KEEPS_MS = 250
/** The most calls that go aside in a millisecond, which bounds that time from below: 1,000 that hang go aside within a second. */
const ASIDE_PER_MS = 4
/** The most calls that run aside. */
const MOST_ASIDE = 1_500
/** The longest time that a call waits for a place. Then it is sent away, because another replica may have one. */
const WAITS_MOST_MS = 1_500
/** The most deliveries held where calls are quick: an eighth of the commands that 32 at a time take. Each holds its document in memory. */
const MOST_HELD = 250

/**
 * A bulkhead between calls that return soon and calls that hang: the engine's places for steps, where a call that has kept its place for 250 ms goes
 * on aside, and the next one begins. That time is halved for each `concurrency` of calls that already run aside, because then the next call may well
 * hang.
 *
 * Invariant: a call waits only for calls that have just begun, unless 1,500 run aside. No more than `concurrency` + 1,500 run at the same time.
 */
export class Bulkhead {
  /** The number of deliveries to hold, beside those whose calls run aside. */
  readonly prefetch: PrefetchTarget
  private readonly semaphore: StepSemaphore
  private asideCount = 0

  constructor(private readonly concurrency: number) {
    this.prefetch = new PrefetchTarget(concurrency, undefined, MOST_HELD)
    this.semaphore = new StepSemaphore(concurrency, 0)
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
    const askedMs = systemClock.monotonicMs()
    const turn = this.semaphore.acquire('loop', askedMs)
    if (turn) {
      setTimeout(() => this.semaphore.expire(askedMs + 1), WAITS_MOST_MS).unref()
      if (!(await turn)) {
        this.prefetch.tooMany()
        return undefined
      }
    }
    const begunMs = systemClock.monotonicMs()
    const release = () => {
      this.prefetch.ran(systemClock.monotonicMs() - begunMs)
      this.semaphore.release('loop')
    }
    let isAside = false
    const goAside = () => {
      if (this.asideCount >= MOST_ASIDE) {
        timer = setTimeout(goAside, KEEPS_MS)
        return
      }
      isAside = true
      this.asideCount += 1
      release()
      onAside()
    }
    let timer = setTimeout(goAside, this.keepsMs())
    return () => {
      clearTimeout(timer)
      if (isAside) this.asideCount -= 1
      else release()
    }
  }

  private keepsMs(): number {
    const ms = KEEPS_MS / 2 ** Math.floor(this.asideCount / this.concurrency)
    return Math.min(KEEPS_MS, Math.max(this.concurrency / ASIDE_PER_MS, ms))
  }
}
