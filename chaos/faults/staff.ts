import { sleep } from '../../dist/time/index.js'
import type { DemoReplica, Fleet } from '../proof/fleet.ts'
import { waitFor } from '../proof/wait-for.ts'
import type { FaultsReplicaConfig } from './replica-process.ts'

export const STAFF_SIZE = 3
const WATCHED_EVERY_MS = 300

/** Keeps this many replicas at work, however often they are ended; checks that none ends by itself. */
export class Staff {
  private readonly fleet: Fleet<Partial<FaultsReplicaConfig>>
  private readonly uriOf: (name: string) => string
  private hired = 0
  private isOver = false
  private paused: DemoReplica | undefined

  constructor(fleet: Fleet<Partial<FaultsReplicaConfig>>, uriOf: (name: string) => string) {
    this.fleet = fleet
    this.uriOf = uriOf
  }

  start(): void {
    void this.watch()
  }

  /** Waits until all are at work, as long as any is being hired; resolves to the number at work. */
  async complete(isStopped: () => boolean): Promise<number> {
    const atWork = () => this.atWork().filter(({ identity }) => identity !== undefined).length
    const progress = () => `${this.hired} ${atWork()}`
    await waitFor(() => isStopped() || atWork() >= STAFF_SIZE, { progress, everyMs: WATCHED_EVERY_MS })
    return atWork()
  }

  kill(which: number): boolean {
    const replica = this.pick(which)
    replica?.kill()
    return replica !== undefined
  }

  terminate(which: number): boolean {
    const replica = this.pick(which)
    replica?.stop()
    return replica !== undefined
  }

  async pause(which: number, forMs: number): Promise<boolean> {
    const replica = this.pick(which)
    if (!replica || this.paused) return false
    this.paused = replica
    replica.pause()
    await sleep(forMs, { unref: true })
    this.paused = undefined
    if (replica.isAlive) replica.resume()
    return true
  }

  /** No more are hired; those at work go on, and one that is still starting ends with the fleet. */
  rest(): void {
    this.isOver = true
  }

  /** Replicas that ended or failed without being told to: their names and what they reported. */
  crashed(): string[] {
    return this.fleet.replicas.flatMap(({ name, isDismissed, failure }) =>
      isDismissed || failure === undefined ? [] : [`replica ${name} failed: ${failure}`],
    )
  }

  private atWork(): DemoReplica[] {
    return this.fleet.living.filter(({ isDismissed }) => !isDismissed)
  }

  private pick(which: number): DemoReplica | undefined {
    const candidates = this.atWork().filter((replica) => replica !== this.paused)
    return candidates[Math.floor(which * candidates.length)]
  }

  private async watch(): Promise<void> {
    while (!this.isOver) {
      const missing = Math.max(0, STAFF_SIZE - this.atWork().length)
      for (let i = 0; i < missing; i += 1) void this.hire()
      await sleep(WATCHED_EVERY_MS)
    }
  }

  /** A replica that can't start because the database is away is let go; the next look hires another. */
  private async hire(): Promise<void> {
    this.hired += 1
    const name = `r${this.hired}`
    try {
      await this.fleet.start(name, { uri: this.uriOf(name) })
    } catch {
      this.fleet.replicas.find((one) => one.name === name)?.kill()
    }
  }
}
