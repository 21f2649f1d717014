import type { Clock } from '../../time/index.js'

const OPEN_MS = 5_000
/** A server that has answered nothing for this long, while requests are waiting for it, gets no more until one of them is answered. */
const STALLED_MS = 1_500

/** The end of a request. `failed`: there was no reply, or one that makes all other requests fail too. `cancelled`: proves nothing. */
type Ended = 'reply' | 'failed' | 'cancelled'

/**
 * Keeps a server that doesn't answer from holding up everything else: a request occupies a slot of its replica's concurrency until it
 * ends. After a request without a reply, or with refused credentials, nothing is sent for 5 s, then a single one as a test. While
 * a request has been waiting for 1.5 s, no others join it.
 */
export class Circuit {
  /** The time at which each unanswered request was sent. */
  private readonly waiting = new Set<{ readonly sentMs: number }>()
  private lastReplyMs = Number.NEGATIVE_INFINITY
  private failure: { readonly reason: string; tryAtMs: number } | undefined

  constructor(private readonly clock: Clock) {}

  /** The reason of the last failure; undefined: as far as is known the server answers. */
  get lastFailure(): string | undefined {
    return this.failure?.reason
  }

  /**
   * Returns `ended`, to be called once, if the request may be sent. Otherwise returns the reason, always in the same words: identical waits
   * of a document are recorded as one.
   */
  enter(): { ended(how: Ended, reason?: string): void } | { readonly reason: string } {
    const nowMs = this.clock.monotonicMs()
    if (this.failure) {
      if (nowMs < this.failure.tryAtMs) return { reason: `${this.failure.reason} (it is asked again every 5 s)` }
      // This request is the test; the others wait for its result.
      this.failure.tryAtMs = nowMs + OPEN_MS
    } else if (this.stalledFor(nowMs) > STALLED_MS) {
      return { reason: 'other requests are waiting for its answer' }
    }
    const request = { sentMs: nowMs }
    this.waiting.add(request)
    return {
      ended: (how, reason = 'no reply') => {
        if (!this.waiting.delete(request)) return
        if (how === 'reply') this.replied()
        else if (how === 'failed') this.failed(request.sentMs, reason)
      },
    }
  }

  private replied(): void {
    this.lastReplyMs = this.clock.monotonicMs()
    this.failure = undefined
  }

  private failed(sentMs: number, reason: string): void {
    // A slow request while others are answered proves nothing about the server.
    if (this.lastReplyMs > sentMs) return
    this.failure = { reason, tryAtMs: this.clock.monotonicMs() + OPEN_MS }
  }

  private stalledFor(nowMs: number): number {
    let oldestMs = nowMs
    for (const { sentMs } of this.waiting) oldestMs = Math.min(oldestMs, sentMs)
    return Math.min(nowMs - oldestMs, nowMs - this.lastReplyMs)
  }
}
