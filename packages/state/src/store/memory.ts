import type { Clock } from 'phaselock'
import { systemClock } from '../time.js'
import type { Backend, Condition, Stored, Write } from './backend.js'

interface Kept extends Write {
  readonly untilMs: number
}

/** Values in this process: the single mode. Its "server's clock" never goes back. */
export class MemoryBackend implements Backend {
  readonly kind = 'memory'
  readonly batch = 1_000
  private readonly values = new Map<string, Kept>()

  constructor(private readonly clock: Clock = systemClock) {}

  async read(key: string): Promise<Stored | undefined> {
    return this.live(key)
  }

  async readMany(keys: readonly string[]): Promise<ReadonlyMap<string, Stored>> {
    return new Map(
      keys.flatMap((key): [string, Stored][] => {
        const stored = this.live(key)
        return stored ? [[key, stored]] : []
      }),
    )
  }

  async write(key: string, write: Write, condition?: Condition): Promise<boolean> {
    if (condition && !isMet(condition, this.live(key))) return false
    const untilMs = write.ttlMs === undefined ? Number.POSITIVE_INFINITY : this.clock.monotonicMs() + write.ttlMs
    this.values.set(key, { ...write, untilMs })
    return true
  }

  async delete(key: string, version?: string): Promise<boolean> {
    const stored = this.live(key)
    if (!stored || (version !== undefined && stored.version !== version)) return false
    return this.values.delete(key)
  }

  async removeExpired(): Promise<number> {
    const now = this.clock.monotonicMs()
    let removed = 0
    for (const [key, { untilMs }] of this.values) {
      if (untilMs > now) continue
      this.values.delete(key)
      removed += 1
      if (removed === this.batch) break
    }
    return removed
  }

  private live(key: string): (Stored & { readonly fence: number }) | undefined {
    const kept = this.values.get(key)
    if (!kept) return undefined
    const { encoded, version, fence, ttlMs, untilMs } = kept
    const leftMs = untilMs - this.clock.monotonicMs()
    if (leftMs <= 0) return undefined
    return { encoded, version, fence, leftMs: ttlMs === undefined ? undefined : leftMs }
  }
}

const isMet = (
  { absent = false, version, fenceBelow = 0 }: Condition,
  stored: { readonly version: string; readonly fence: number } | undefined,
): boolean => (stored ? stored.version === version || (stored.fence > 0 && stored.fence < fenceBelow) : absent)

/** The values of all stores in this process that keep them in memory. */
export const sharedMemory = new MemoryBackend()
