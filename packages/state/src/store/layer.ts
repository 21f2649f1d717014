import type { Clock } from 'phaselock'
import type { Stored } from './backend.js'
import type { Changed, Hears } from './bell.js'
import { sizeOf } from './codec.js'
import type { Hearing } from './hearing.js'

/** The bytes of all values together, so that a thousand large ones don't fill the memory. */
const MOST_BYTES = 64 * 1024 * 1024

interface Kept {
  /** Undefined: there is no value. */
  readonly stored: Stored | undefined
  /** By this process's monotonic clock. */
  readonly untilMs: number
}

/** A read that is under way. */
interface Reading {
  readonly key: string
  /** True if the key may have changed since it was sent: its answer isn't kept. */
  isOutdated: boolean
}

/**
 * Values that this process keeps for a moment. Invariants:
 * 1. nothing is served while the doorbell isn't heard, and nothing from before it is heard again;
 * 2. nothing is served that is older than `maxAge`, counted from before its read was sent, or whose own time is over;
 * 3. what a ring names, or what this process writes itself, is not served after that, not even if it was read before and comes in later.
 */
export class Layer implements Hears {
  private readonly kept = new Map<string, Kept>()
  private readonly reading = new Set<Reading>()
  private bytes = 0

  constructor(
    private readonly prefix: string,
    private readonly options: { readonly maxAgeMs: number; readonly most: number },
    private readonly hears: Hearing,
    private readonly clock: Clock,
  ) {
    hears.add(this)
    hears.need()
  }

  /** The value as it may be served; null: it has to be read. */
  get(key: string): Stored | undefined | null {
    const kept = this.kept.get(key)
    if (!kept) return null
    this.drop(key)
    if (kept.untilMs <= this.clock.monotonicMs()) return null
    // The one that was read last is the last to go.
    this.put(key, kept)
    return kept.stored
  }

  /** Reads, and keeps the answer if the key hasn't changed in the meantime. */
  async read(key: string, read: () => Promise<Stored | undefined>): Promise<Stored | undefined> {
    const reading: Reading = { key, isOutdated: !this.hears.isHearing }
    this.reading.add(reading)
    const sentMs = this.clock.monotonicMs()
    try {
      const stored = await read()
      const lastsMs = Math.min(this.options.maxAgeMs, stored?.leftMs ?? Number.POSITIVE_INFINITY)
      if (!reading.isOutdated) this.put(key, { stored, untilMs: sentMs + lastsMs })
      return stored
    } finally {
      this.reading.delete(reading)
    }
  }

  /** Forgets a key, or all of them. */
  forget(key?: string): void {
    for (const reading of this.reading) if (key === undefined || reading.key === key) reading.isOutdated = true
    if (key === undefined) {
      this.kept.clear()
      this.bytes = 0
    } else this.drop(key)
  }

  changed(changed: Changed): void {
    if (changed && changed.prefix !== this.prefix) return
    if (changed?.keys) for (const key of changed.keys) this.forget(key)
    else this.forget()
  }

  hearing(): void {
    this.forget()
  }

  private put(key: string, kept: Kept): void {
    this.drop(key)
    this.kept.set(key, kept)
    this.bytes += bytesOf(kept)
    for (const [oldest] of this.kept) {
      if (this.kept.size <= this.options.most && this.bytes <= MOST_BYTES) return
      this.drop(oldest)
    }
  }

  private drop(key: string): void {
    const kept = this.kept.get(key)
    if (!kept) return
    this.kept.delete(key)
    this.bytes -= bytesOf(kept)
  }
}

const bytesOf = ({ stored }: Kept): number => (stored ? sizeOf(stored.encoded) : 0)
