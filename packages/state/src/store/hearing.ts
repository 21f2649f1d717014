import type { Logger } from 'phaselock'
import { sleep } from '../time.js'
import type { Bell, Changed, Hears } from './bell.js'

/** A caller that waits may come back soon: the listener is kept for a while. */
const KEPT_MS = 60_000

/**
 * What this process hears of others. It listens only while something in it needs that: a layer, or a caller who waits for another process.
 */
export class Hearing {
  isHearing = false
  private readonly parts = new Set<Hears>()
  private needs = 0
  private listening: { stop(): Promise<void> } | undefined
  private stopping = new AbortController()
  private isReported = false
  private isClosed = false

  constructor(
    private readonly bell: Bell | undefined,
    private readonly logger: Logger,
  ) {}

  /** Adds a part of the process. It is called for each ring and each change of hearing while the process listens. */
  add(part: Hears): () => void {
    this.parts.add(part)
    return () => this.parts.delete(part)
  }

  /** Listens until it is released. */
  need(): () => void {
    this.needs += 1
    this.stopping.abort()
    if (!this.listening && this.bell && !this.isClosed) {
      this.listening = this.bell.listen({
        changed: (changed) => this.tell(changed),
        hearing: (isHearing, error) => this.heard(isHearing, error),
      })
    }
    let isReleased = false
    return () => {
      if (isReleased) return
      isReleased = true
      this.needs -= 1
      if (this.needs === 0) void this.stopLater()
    }
  }

  /** Stops listening for good. */
  async close(): Promise<void> {
    this.isClosed = true
    await this.stop()
  }

  private async stop(): Promise<void> {
    this.stopping.abort()
    const listening = this.listening
    this.listening = undefined
    this.heard(false)
    await listening?.stop()
  }

  private async stopLater(): Promise<void> {
    const stopping = new AbortController()
    this.stopping = stopping
    await sleep(KEPT_MS, stopping.signal, true)
    if (!stopping.signal.aborted && this.needs === 0) await this.stop()
  }

  private tell(changed: Changed): void {
    for (const part of this.parts) part.changed(changed)
  }

  private heard(isHearing: boolean, error?: unknown): void {
    if (!isHearing && error !== undefined && !this.isReported) {
      this.isReported = true
      const why = error instanceof Error ? error.message : String(error)
      this.logger.warn(
        `the doorbell of the shared state cannot be heard, so layers serve nothing and callers look more often: ${why}`,
      )
    }
    if (isHearing && this.isReported) {
      this.isReported = false
      this.logger.info('the doorbell of the shared state can be heard again')
    }
    if (this.isHearing === isHearing) return
    this.isHearing = isHearing
    for (const part of this.parts) part.hearing(isHearing, error)
  }
}
