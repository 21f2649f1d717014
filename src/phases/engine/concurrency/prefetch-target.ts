import type { StepKind } from './step-semaphore.js'

/** The prefetch targets for documents whose steps run in each kind of place. */
export type PrefetchTargets = Readonly<Record<StepKind, PrefetchTarget>>

/** The most documents that one claim takes, in two parts at the same time; so while some are recorded, others are being claimed. */
export const MAX_BATCH = 1_000
const MOST_HELD = 2_000
/** The work that a replica takes ahead of its free places, in milliseconds of its handlers' own duration. */
const AHEAD_MS = 250
/** The least work ahead: the steps that begin within this time, up to a quarter of the places. */
const AHEAD_LEAST_MS = 1_000
/** The time that a step may spend outside its handler (in the queue and being recorded) before a replica holds less. */
const MOST_BESIDE_MS = 250
const SMOOTHING = 0.05

/**
 * The number of documents that a replica holds: its concurrency plus what its handlers can begin within a quarter of a second. At least what they
 * begin within a second, up to a quarter more than the concurrency; at most 2,000. With a concurrency of 32: handlers of 1 ms -> 2,000, of 100 ms ->
 * 112, of 1 s -> 40, of 10 s -> 35. So no replica hoards documents that others could begin.
 *
 * Where documents had to be let go because no place became free, it takes none ahead until a handler has ended.
 *
 * Where a step spends more than a quarter of a second in the queue and being recorded (a slow database, a busy machine), it holds less until that is
 * over: due documents wait behind all that is held. 900 documents a second -> 225, not 2,000.
 */
export class PrefetchTarget {
  private meanMs: number | undefined
  private besideMs: number | undefined
  private isStuck = false

  private mostHeld: number

  /**
   * @param mayRun where a replica's lifecycles share places: the number of handlers that may run now, and when it is their turn. Default: `most`
   * @param mostEver the most documents that are held
   */
  constructor(
    private readonly most: number,
    private readonly mayRun?: (() => { readonly now: number; readonly inTurn: number }) | undefined,
    private readonly mostEver = MOST_HELD,
  ) {
    this.mostHeld = mostEver
  }

  /** Records the time that a handler ran. */
  ran(ms: number): void {
    this.isStuck = false
    this.meanMs = smoothed(this.meanMs, ms)
  }

  /** Records the time that a step spent outside its handler, from entering the queue to being recorded. */
  recorded(besideMs: number): void {
    this.besideMs = smoothed(this.besideMs, besideMs)
  }

  /** Records that held documents had to be let go: no place became free for them. */
  tooMany(): void {
    this.isStuck = true
  }

  /** Holds less, or more again, depending on how long steps took since the previous claim. Called once for each claim. */
  adapt(): void {
    const { besideMs } = this
    if (besideMs === undefined) return
    if (besideMs > MOST_BESIDE_MS) this.mostHeld *= Math.max(0.5, MOST_BESIDE_MS / besideMs)
    else if (besideMs < MOST_BESIDE_MS / 2) this.mostHeld *= 1.25
    this.mostHeld = Math.min(this.mostEver, Math.max(this.least, this.mostHeld))
  }

  get target(): number {
    const { concurrency, meanMs } = this
    if (this.isStuck) return concurrency
    if (meanMs === undefined) return this.least
    const aheadIn = (ms: number) => (concurrency * ms) / Math.max(meanMs, 0.1)
    const atLeast = Math.min(this.least, Math.round(concurrency + aheadIn(AHEAD_LEAST_MS)))
    return Math.max(atLeast, Math.round(Math.min(this.mostHeld, concurrency + aheadIn(AHEAD_MS))))
  }

  /**
   * The number of documents to claim now, 0 while a claim isn't worth it: less than a quarter of the places is claimed only where handlers would
   * otherwise be idle. Documents that are being recorded come back: small claims in the meantime make small groups for all steps that follow (177
   * documents a write instead of 260; with candidates in one reply 20,500 steps/s instead of 17,200, measured).
   */
  toClaim(held: number): number {
    const free = this.target - held
    if (free <= 0 || (free < this.target / 4 && held >= this.concurrency)) return 0
    return Math.min(free, MAX_BATCH)
  }

  private get concurrency(): number {
    if (!this.mayRun) return this.most
    const { now, inTurn } = this.mayRun()
    return Math.min(this.most, this.isStuck ? now : inTurn)
  }

  private get least(): number {
    return Math.ceil(this.concurrency * 1.25)
  }
}

const smoothed = (mean: number | undefined, value: number): number =>
  mean === undefined ? value : mean + SMOOTHING * (value - mean)
