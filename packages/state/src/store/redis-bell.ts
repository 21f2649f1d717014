import { sleep } from '../time.js'
import type { Bell, Changed, Hears } from './bell.js'
import type { Send, Subscriber } from './redis-client.js'

const CHANNEL = 'phaselock-state'
/** At most 20 messages a second: the pace of the database's doorbell. */
const PACE_MS = 50
/** A message that names more keys isn't cheaper than a look. */
const MOST_KEYS = 64
const FLUSH_WITHIN_MS = 1_000
const FIRST_RETRY_MS = 250
const LONGEST_RETRY_MS = 60_000

/** Rings by Redis's publish and subscribe; those of 50 ms become one message for each prefix. */
export class RedisBell implements Bell {
  /** By prefix; null: more keys than a message names. */
  private pending = new Map<string, Set<string> | null>()
  private sending: Promise<void> | undefined
  private hurry = new AbortController()

  /** @param subscriber opens the second connection; undefined: the client can't, and this process is deaf */
  constructor(
    private readonly send: Send,
    private readonly subscriber: (() => Subscriber) | undefined,
    private readonly self: string,
  ) {}

  ring(prefix: string, key: string): void {
    const keys = this.pending.get(prefix)
    if (keys === undefined) this.pending.set(prefix, new Set([key]))
    else if (keys && keys.size < MOST_KEYS) keys.add(key)
    else this.pending.set(prefix, null)
    this.sending ??= this.sendAll().finally(() => {
      this.sending = undefined
    })
  }

  async flush(): Promise<void> {
    this.hurry.abort()
    await Promise.race([this.sending, sleep(FLUSH_WITHIN_MS)])
    this.hurry = new AbortController()
  }

  listen(hears: Hears): { stop(): Promise<void> } {
    if (!this.subscriber) {
      hears.hearing(
        false,
        new Error('expected a client of ioredis, which can be duplicated to listen; got another one'),
      )
      return { stop: async () => undefined }
    }
    const subscriber = this.subscriber()
    const stopped = new AbortController()
    let isReady = false
    // A connection that was closed on purpose is no outage.
    const deaf = (error: unknown) => {
      if (!stopped.signal.aborted) hears.hearing(false, error)
    }
    const subscribe = async () => {
      isReady = true
      for (
        let pauseMs = FIRST_RETRY_MS;
        isReady && !stopped.signal.aborted;
        pauseMs = Math.min(LONGEST_RETRY_MS, pauseMs * 2)
      ) {
        try {
          await subscriber.subscribe(CHANNEL)
          if (!isReady || stopped.signal.aborted) return
          hears.hearing(true)
          return hears.changed(undefined)
        } catch (error) {
          deaf(error)
          await sleep(pauseMs, stopped.signal)
        }
      }
    }
    subscriber.on('ready', () => void subscribe())
    subscriber.on('close', () => {
      isReady = false
      deaf(new Error('the connection that listens was closed'))
    })
    subscriber.on('error', deaf)
    subscriber.on('message', (_channel: string, text: string) => {
      if (stopped.signal.aborted) return
      for (const changed of this.changedIn(text)) hears.changed(changed)
    })
    return {
      stop: async () => {
        stopped.abort()
        subscriber.disconnect()
      },
    }
  }

  private async sendAll(): Promise<void> {
    // Not in the caller's turn of the event loop: all rings in that turn become one.
    await Promise.resolve()
    while (this.pending.size > 0) {
      const rung = [...this.pending].map(([prefix, keys]) => ({ prefix, keys: keys && [...keys] }))
      this.pending = new Map()
      await this.send(['PUBLISH', CHANNEL, JSON.stringify({ by: this.self, rung })]).catch(() => undefined)
      await sleep(PACE_MS, this.hurry.signal)
    }
  }

  /** Anybody may publish there: what can't be read says that any key may have changed. */
  private changedIn(text: string): readonly Changed[] {
    try {
      const { by, rung } = JSON.parse(text) as { by: string; rung: { prefix: string; keys: string[] | null }[] }
      if (by === this.self) return []
      return rung.map(({ prefix, keys }) => ({ prefix: String(prefix), keys: keys?.map(String) }))
    } catch {
      return [undefined]
    }
  }
}
