import { Mutex } from '../concurrency/index.js'
import { sleep } from '../time/index.js'

const MOST_NAMES = 1_000
const MOST_OF_A_NAME = 16
/** One minute in total: an acquisition may arrive after the first attempt to free it, or the server may be down for a while. */
const PAUSES_MS = [0, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]

/**
 * Acquisitions that were never answered (the server may have granted them, or may still do so), and unlocks that never were. They are freed by their tokens in the
 * background, and before this process requests the name again, so that an outage doesn't cost a whole lockAtMostFor.
 * Tokens and attempts are bounded; any acquisition still left after that expires.
 */
export class AbandonedAcquisitions {
  /** By name and token: the lockAtLeastFor that is honoured. */
  private readonly tokens = new Map<string, Map<string, number>>()
  private readonly closed = new AbortController()
  /** Frees one at a time, so that a recovered server doesn't get them all at the same time, nor any that were dropped since. */
  private readonly freeing = new Mutex()

  constructor(
    /** A write that touches only this token's acquisition. @returns true if it was held */
    private readonly free: (name: string, token: string, atLeastMs: number) => Promise<boolean>,
    private readonly pausesMs: readonly number[] = PAUSES_MS,
  ) {}

  add(name: string, token: string, atLeastMs = 0): void {
    const ofName = this.tokens.get(name) ?? new Map<string, number>()
    if (ofName.size === 0 && this.tokens.size >= MOST_NAMES) this.tokens.delete(this.tokens.keys().next().value!)
    if (ofName.size >= MOST_OF_A_NAME) ofName.delete(ofName.keys().next().value!)
    this.tokens.set(name, ofName.set(token, atLeastMs))
    void this.freeLater(name, token, atLeastMs)
  }

  /** Frees a name's acquisitions now. @throws the error of `free` */
  async clear(name: string): Promise<void> {
    for (const [token, atLeastMs] of [...(this.tokens.get(name) ?? [])])
      if (await this.free(name, token, atLeastMs)) this.drop(name, token)
  }

  /** Resolves when the current attempt has ended; acquisitions not freed yet expire. */
  async close(): Promise<void> {
    this.closed.abort()
    await this.freeing.idle()
  }

  private async freeLater(name: string, token: string, atLeastMs: number): Promise<void> {
    for (const ms of this.pausesMs) {
      await sleep(ms, { signal: this.closed.signal, unref: true })
      if (!this.isWanted(name, token)) break
      const freed = this.freeing.run(() => this.isWanted(name, token) && this.free(name, token, atLeastMs))
      if (await freed.catch(() => false)) break
    }
    this.drop(name, token)
  }

  private isWanted(name: string, token: string): boolean {
    return !this.closed.signal.aborted && (this.tokens.get(name)?.has(token) ?? false)
  }

  private drop(name: string, token: string): void {
    const ofName = this.tokens.get(name)
    if (ofName?.delete(token) && ofName.size === 0) this.tokens.delete(name)
  }
}
