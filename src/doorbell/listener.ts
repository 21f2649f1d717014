import { answered } from '../database/index.js'
import { type Clock, sleep } from '../time/index.js'
import { EVERYTHING, heardIn, type Ring } from './ring.js'
import type { DoorbellKind, OpenSource, RingSource } from './source.js'
import { type Left, RING_PACE, takeTurn } from './turns.js'

const FIRST_RETRY_MS = 250
const LONGEST_RETRY_MS = 60_000
const STOP_WITHIN_MS = 1_000

/** Whether rings are being heard; if not, why. */
export type Hearing =
  | { readonly listening: true; readonly kind: DoorbellKind }
  | { readonly listening: false; readonly error?: unknown }

export interface ListenerOptions {
  /** The lifecycles whose rings are of interest. */
  readonly names: readonly string[]
  /** Who listens: it ignores its own rings. */
  readonly self: string
  /** What to listen with, asked before each attempt; the last attempt's error tells it what doesn't work. */
  readonly source: (lastError: unknown) => Promise<RingSource>
  /** Acts on rings. The next ones are heard once it resolves: it never overlaps itself, and rings meanwhile come after. */
  readonly onRing: (ring: Ring) => Promise<unknown>
  /** Called on each change. */
  readonly onHearing: (hearing: Hearing) => void
  readonly clock: Clock
}

/**
 * Listens until it is stopped. All rings while it acts, or waits for its turn (20 a second), become one: a storm costs no more
 * than that pace. When the source ends it starts again after 0.25 s, 0.5 s, ... 1 min; a look at everything makes up for the
 * rings it missed.
 */
export class Listener {
  private readonly stopped = new AbortController()
  private readonly running: Promise<void>
  private open: OpenSource | undefined
  private left: Left | undefined
  private isListening = false

  constructor(private readonly options: ListenerOptions) {
    this.running = this.run()
  }

  async stop(): Promise<void> {
    this.stopped.abort()
    await this.open?.close()
    await answered(this.running, STOP_WITHIN_MS).catch(() => undefined)
  }

  private get isStopped(): boolean {
    return this.stopped.signal.aborted
  }

  private async run(): Promise<void> {
    let lastError: unknown
    let pauseMs = FIRST_RETRY_MS
    while (!this.isStopped) {
      try {
        const source = await this.options.source(lastError)
        this.open = await source.open()
        if (this.isStopped) break
        this.tell({ listening: true, kind: source.kind })
        await this.hear(this.open, () => {
          pauseMs = FIRST_RETRY_MS
        })
      } catch (error) {
        lastError = error
        if (!this.isStopped) this.tell({ listening: false, error })
      }
      await this.open?.close()
      this.open = undefined
      await sleep(pauseMs, { signal: this.stopped.signal, unref: true })
      pauseMs = Math.min(LONGEST_RETRY_MS, pauseMs * 2)
    }
    await this.open?.close()
    this.tell({ listening: false })
  }

  private async hear(open: OpenSource, answers: () => void): Promise<void> {
    const { names, self, onRing } = this.options
    await this.turn()
    await onRing(EVERYTHING)
    while (!this.isStopped) {
      const ring = heardIn(await open.next(), names, self)
      answers()
      if (!ring) continue
      await this.turn()
      if (!this.isStopped) await onRing(ring)
    }
  }

  private async turn(): Promise<void> {
    const [left, waitMs] = takeTurn(this.left, this.options.clock.monotonicMs(), RING_PACE)
    this.left = left
    if (waitMs > 0) await sleep(waitMs, { signal: this.stopped.signal, unref: true })
  }

  private tell(hearing: Hearing): void {
    if (!hearing.listening && !this.isListening && hearing.error === undefined) return
    this.isListening = hearing.listening
    this.options.onHearing(hearing)
  }
}
