import type { Clock, Logger } from 'phaselock'
import { type Encoded, sizeOf } from './codec.js'

const MOST = 1_000
const MOST_BYTES = 64 * 1024 * 1024

interface Last {
  readonly encoded: Encoded
  readonly untilMs: number
}

/** A request whose caller may accept a stale value while the store is away. */
interface MayBeStale {
  readonly key: string
  readonly staleForMs: number | undefined
}

/** The last value of each key whose callers want it while the store or the locks are away. The latest are kept, within a bound. */
export class LastValues {
  private readonly values = new Map<string, Last>()
  private bytes = 0
  private reported: string | undefined

  constructor(private readonly clock: Clock) {}

  /** @param leftMs the time that the value has left; undefined: it is fresh now */
  keep({ key, staleForMs }: MayBeStale, encoded: Encoded, leftMs: number | undefined): void {
    this.reported = undefined
    if (staleForMs === undefined) return
    this.drop(key)
    this.values.set(key, { encoded, untilMs: this.clock.monotonicMs() + (leftMs ?? 0) + staleForMs })
    this.bytes += sizeOf(encoded)
    for (const [oldest] of this.values) {
      if (this.values.size <= MOST && this.bytes <= MOST_BYTES) return
      this.drop(oldest)
    }
  }

  get({ key, staleForMs }: MayBeStale): Encoded | undefined {
    const last = staleForMs === undefined ? undefined : this.values.get(key)
    return last && last.untilMs > this.clock.monotonicMs() ? last.encoded : undefined
  }

  /** One warning until a value has been seen again. */
  report(key: string, error: unknown, logger: Logger): void {
    if (this.reported !== undefined) return
    this.reported = key
    logger.warn(
      `'${key}': the last value is in use, because it cannot be renewed: ${error instanceof Error ? error.message : String(error)}`,
    )
  }

  private drop(key: string): void {
    const last = this.values.get(key)
    if (!last) return
    this.values.delete(key)
    this.bytes -= sizeOf(last.encoded)
  }
}
