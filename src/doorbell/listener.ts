import type { Document } from 'mongodb'
import { answered } from '../database/index.js'
import { type Clock, sleep } from '../time/index.js'
import { EVERYTHING, heardIn, type Ring } from './ring.js'
import type { DoorbellKind, RingSource } from './sources.js'
import { RING_PACE, Turns } from './turns.js'

const FIRST_RETRY_MS = 250
const LONGEST_RETRY_MS = 60_000
const STOP_WITHIN_MS = 1_000

/** The state of a listener: it hears rings, or it doesn't and why. */
export type Hearing =
  | { readonly listening: true; readonly kind: DoorbellKind }
  | { readonly listening: false; readonly error?: unknown }

export interface ListenerOptions {
  /** The lifecycles whose rings are of interest. */
  readonly names: readonly string[]
  /** The listener's identity: it ignores its own rings. */
  readonly self: string
  /** Begins to listen. The last attempt's error shows what doesn't work. */
  readonly open: (lastError: unknown) => Promise<RingSource>
  /** Acts on rings. The next ones are heard once it resolves: calls never overlap, and rings during a call come after it. */
  readonly onRing: (ring: Ring) => Promise<unknown>
  /** Called on each change. */
  readonly onHearing: (hearing: Hearing) => void
  readonly clock: Clock
}

/**
 * Listens until it is stopped. All rings while it acts, or waits for its turn (20 a second), become one: a storm costs no more than
 * that pace. When the source ends, the listener starts again after 0.25 s, 0.5 s, ... 1 min; a look at everything makes up for the
 * rings it missed.
 */
export class Listener {
  private readonly stopped = new AbortController()
  private readonly running: Promise<void>
  private readonly turns = new Turns(RING_PACE)
  private source: RingSource | undefined
  private stopWaiting: (() => void) | undefined
  private isListening = false

  constructor(private readonly options: ListenerOptions) {
    this.running = this.run()
  }

  /** Stops listening, within a second or two. */
  async stop(): Promise<void> {
    this.stopped.abort()
    this.stopWaiting?.()
    await this.source?.close()
    await answered(this.running, STOP_WITHIN_MS).catch(() => undefined)
  }

  private get isStopped(): boolean {
    return this.stopped.signal.aborted
  }

  private async run(): Promise<void> {
    const { names, self, open, onRing } = this.options
    let lastError: unknown
    let pauseMs = FIRST_RETRY_MS
    while (!this.isStopped) {
      try {
        this.source = await open(lastError)
        if (this.isStopped) break
        this.tell({ listening: true, kind: this.source.kind })
        await this.turn()
        await onRing(EVERYTHING)
        while (!this.isStopped) {
          const ring = heardIn(await this.entries(this.source), names, self)
          pauseMs = FIRST_RETRY_MS
          if (!ring) continue
          await this.turn()
          if (!this.isStopped) await onRing(ring)
        }
      } catch (error) {
        lastError = error
        if (!this.isStopped) this.tell({ listening: false, error })
      }
      await this.source?.close()
      this.source = undefined
      await sleep(pauseMs, { signal: this.stopped.signal, unref: true })
      pauseMs = Math.min(LONGEST_RETRY_MS, pauseMs * 2)
    }
    await this.source?.close()
    this.tell({ listening: false })
  }

  /** Resolves with the next entries, with none once it is stopped: a server may go on waiting for half a minute although its cursor was closed. */
  private entries(source: RingSource): Promise<Document[]> {
    const { promise, resolve, reject } = Promise.withResolvers<Document[]>()
    this.stopWaiting = () => resolve([])
    source.next().then(resolve, reject)
    return promise
  }

  private async turn(): Promise<void> {
    const waitMs = this.turns.take(this.options.clock.monotonicMs())
    if (waitMs > 0) await sleep(waitMs, { signal: this.stopped.signal, unref: true })
  }

  private tell(hearing: Hearing): void {
    if (!hearing.listening && !this.isListening && hearing.error === undefined) return
    this.isListening = hearing.listening
    this.options.onHearing(hearing)
  }
}
