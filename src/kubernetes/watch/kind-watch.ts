import { Unavailable } from '../../phases/index.js'
import { type Clock, sleep } from '../../time/index.js'
import { KubernetesError } from '../api/errors.js'
import type { KindRef, KubernetesObject } from '../api/objects.js'
import type { Cluster } from '../cluster/cluster.js'
import { eventsOf, SilentStream } from './event-stream.js'
import type { Change, Verdicts } from './verdicts.js'

const FIRST_PAUSE_MS = 250
/** A stream that ends sooner doesn't count as a success: one that always ended this soon would be reopened without a pause. */
const LEAST_STREAM_MS = 1_000
/** The server ends a stream after a time in this range, so that they don't all end together; the next stream continues from there. */
const STREAM_SECONDS = [240, 360] as const

export interface KindWatchOptions {
  readonly cluster: Cluster
  readonly kind: KindRef
  /** Undefined: all namespaces. */
  readonly namespace: string | undefined
  /** A label selector. Undefined: all objects. */
  readonly labels: string | undefined
  readonly verdicts: Pick<Verdicts, 'saw' | 'lost' | 'beginList' | 'endList'>
  /** The silence after which the stream counts as dead: a server with bookmarks sends something every minute. */
  readonly silenceMs: number
  /** The longest pause after failures. Used immediately if the server refuses, because a person must then change a Role or install a definition. */
  readonly longestPauseMs: number
  readonly clock: Clock
  readonly random: () => number
  /** Called once for all changes that arrived together. */
  readonly onChanges: (changes: readonly Change[]) => void
  /** Called when the watch starts to work, and on each failure. */
  readonly onHearing: (hearing: { heard: true } | { heard: false; error: unknown }) => void
}

/**
 * One list-watch, until its signal aborts: a list in pages, then the stream from there on. A stream that ends is reopened
 * where it ended. After a 410 (the server no longer knows that point) it starts over with a list, and reports the changes since.
 * After failures it pauses for 0.25 s, and then twice as long each time.
 */
export class KindWatch {
  private pauseMs = FIRST_PAUSE_MS

  /** @param resourceVersion the point to start from; undefined: start with a list */
  constructor(
    private readonly options: KindWatchOptions,
    private resourceVersion?: string,
  ) {}

  async run(signal: AbortSignal): Promise<void> {
    const { clock, random, longestPauseMs, onHearing } = this.options
    while (!signal.aborted) {
      const startedMs = clock.monotonicMs()
      let error: unknown
      try {
        if (this.resourceVersion === undefined) await this.list(signal)
        await this.follow(signal)
      } catch (caught) {
        error = caught
      }
      if (signal.aborted) return
      const isGone = (error as { status?: unknown } | undefined)?.status === GONE
      if (isGone) this.resourceVersion = undefined
      const lasted = clock.monotonicMs() - startedMs >= LEAST_STREAM_MS
      // The server ended it, it fell silent, or its point was forgotten: no failure if the stream has lasted.
      if (lasted && (error === undefined || isGone || error instanceof SilentStream)) continue
      if (error !== undefined && !isGone) onHearing({ heard: false, error })
      const isRefused = error instanceof KubernetesError && !isGone
      const pauseMs = (isRefused ? longestPauseMs : this.pauseMs) * (0.75 + random() / 2)
      const askedMs = error instanceof Unavailable ? (error.retryAfterMs ?? 0) : 0
      await sleep(Math.max(pauseMs, askedMs), { signal, unref: true })
      this.pauseMs = Math.min(longestPauseMs, this.pauseMs * 2)
    }
  }

  private async list(signal: AbortSignal): Promise<void> {
    const { cluster, kind, namespace, labels, verdicts, onChanges } = this.options
    verdicts.beginList()
    let next: string | undefined
    let resourceVersion: string | undefined
    do {
      const page = await cluster.page(kind, { namespace, labels, signal }, next)
      onChanges(page.items.map((item) => verdicts.saw(item)).filter((change) => change !== undefined))
      resourceVersion = page.metadata.resourceVersion
      next = page.metadata.continue
    } while (next)
    onChanges(verdicts.endList(resourceVersion))
    this.resourceVersion = resourceVersion
  }

  private async follow(signal: AbortSignal): Promise<void> {
    const { cluster, kind, namespace, labels, random, silenceMs, onHearing, onChanges } = this.options
    const { resourceVersion } = this
    const [least, most] = STREAM_SECONDS
    const timeoutSeconds = Math.round(least + random() * (most - least))
    // A signal of its own, so that nothing of an ended stream stays attached to a signal that lives as long as the replica.
    const over = new AbortController()
    const stop = () => over.abort(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
    try {
      const options = { namespace, labels, resourceVersion, timeoutSeconds, signal: over.signal }
      const stream = await cluster.watchStream(kind, options)
      onHearing({ heard: true })
      for await (const events of eventsOf(stream, silenceMs)) {
        this.pauseMs = FIRST_PAUSE_MS
        const changes: Change[] = []
        try {
          for (const event of events) changes.push(...this.take(event))
        } finally {
          if (changes.length > 0) onChanges(changes)
        }
      }
    } finally {
      signal.removeEventListener('abort', stop)
      over.abort()
    }
  }

  /** @throws the error that the server reports in the stream */
  private take({ type, object }: { type: string; object: KubernetesObject }): Change[] {
    const { verdicts, kind } = this.options
    if (type === 'ERROR') throw new StreamError(object)
    this.resourceVersion = object.metadata.resourceVersion ?? this.resourceVersion
    if (type === 'BOOKMARK') return []
    const whole = { ...object, ...kind }
    const change = type === 'DELETED' ? verdicts.lost(whole) : verdicts.saw(whole)
    return change ? [change] : []
  }
}

const GONE = 410

/** The server ended a stream with a Status. */
class StreamError extends Error {
  override readonly name = 'StreamError'
  readonly status: unknown
  constructor({ code, message }: Readonly<Record<string, unknown>>) {
    super(typeof message === 'string' ? message : 'the server ended the stream with an error')
    this.status = code
  }
}
