import { sleep } from '../../../time/index.js'
import type { Fleet } from '../fleet.js'
import { slowness } from '../judgement.js'
import type { ReplicaLink } from '../replica-link.js'
import { waitFor } from '../wait-for.js'

export const CREW_SIZE = 3
/** For all to be at work, on a machine that isn't busy. */
const READY_WITHIN_MS = 60_000
const WATCHED_EVERY_MS = 300

/** Keeps so many replicas at work, however often they are ended; see that none ends by itself. */
export class Crew {
  /** Replicas that were told to end, or never came to work because the database was away. */
  private readonly dismissed = new Set<ReplicaLink>()
  private started = 0
  private over = false
  private paused: ReplicaLink | undefined

  constructor(private readonly fleet: Fleet) {}

  start(): void {
    void this.watch()
  }

  /** Waits until all are at work; resolves to how many are when that takes too long. */
  async complete(stopped: () => boolean): Promise<number> {
    const atWork = () => this.atWork().filter((replica) => replica.hasStarted).length
    const forMs = READY_WITHIN_MS * slowness()
    await waitFor(() => stopped() || atWork() >= CREW_SIZE, { forMs, everyMs: WATCHED_EVERY_MS })
    return atWork()
  }

  kill(which: number): boolean {
    return this.dismiss(which, (replica) => replica.kill())
  }

  terminate(which: number): boolean {
    return this.dismiss(which, (replica) => replica.terminate())
  }

  async pause(which: number, forMs: number): Promise<boolean> {
    const replica = this.pick(which)
    if (!replica || this.paused) return false
    this.paused = replica
    replica.pause()
    await sleep(forMs, { unref: true })
    this.paused = undefined
    if (replica.isAlive) replica.continue()
    return true
  }

  /** No more are hired; those at work go on, and one that is still starting ends with the fleet. */
  rest(): void {
    this.over = true
  }

  /** Replicas that ended or failed though nobody told them to: name and what they said. */
  crashed(): string[] {
    return this.fleet.replicas
      .filter((replica) => !this.dismissed.has(replica) && (!replica.isAlive || replica.failure !== undefined))
      .map(({ name, failure }) => `replica ${name} failed: ${failure ?? 'it ended by itself'}`)
  }

  private atWork(): ReplicaLink[] {
    return this.fleet.living.filter((replica) => !this.dismissed.has(replica))
  }

  private pick(which: number): ReplicaLink | undefined {
    const candidates = this.atWork().filter((replica) => replica !== this.paused)
    return candidates[Math.floor(which * candidates.length)]
  }

  private dismiss(which: number, how: (replica: ReplicaLink) => void): boolean {
    const replica = this.pick(which)
    if (!replica) return false
    this.dismissed.add(replica)
    how(replica)
    return true
  }

  private async watch(): Promise<void> {
    while (!this.over) {
      const missing = Math.max(0, CREW_SIZE - this.atWork().length)
      await Promise.all(Array.from({ length: missing }, () => this.hire()))
      await sleep(WATCHED_EVERY_MS)
    }
  }

  /** One that can't start, as the database is away, is let go; the next look hires another. */
  private async hire(): Promise<void> {
    this.started += 1
    const name = `r${this.started}`
    try {
      await this.fleet.start(name)
    } catch {
      const replica = this.fleet.replicas.find((one) => one.name === name)
      if (!replica) return
      this.dismissed.add(replica)
      replica.kill()
    }
  }
}
