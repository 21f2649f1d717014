import { idBytes, idKey } from '../../../lock/index.js'
import type { Held } from './held.js'

/** One more claim goes on top of it; a command holds 16 MB, and names them up to twice. */
const MOST_ID_BYTES = 4_000_000

/**
 * What a replica holds of one lifecycle, and the line of those whose next step hasn't begun.
 *
 * Invariant: a document is in the line, in a step or being recorded, never in two of them.
 */
export class HeldDocuments {
  private readonly byId = new Map<string, Held>()
  private readonly superseded = new Set<Held>()
  private readonly line: Held[] = []
  private readonly threadLine: Held[] = []
  private forThreads = 0
  private bytesOfIds = 0
  private waiters: (() => void)[] = []

  /** @param threadPhases those whose handlers run in threads: their documents stand in a line of their own */
  constructor(private readonly threadPhases: Pick<ReadonlySet<string>, 'has'> = new Set()) {}

  get size(): number {
    return this.byId.size
  }
  get queued(): number {
    return this.line.length + this.threadLine.length
  }
  /** Of these, for handlers on the event loop. */
  get queuedForLoop(): number {
    return this.line.length
  }

  /** Whether the `_id`s of what is held are as many as one command can name: renewals name all of them. */
  get isFull(): boolean {
    return this.bytesOfIds > MOST_ID_BYTES
  }

  /** How many are held of the phases that share their places with this one. */
  sizeBeside(phase: string): number {
    return this.threadPhases.has(phase) ? this.forThreads : this.byId.size - this.forThreads
  }

  /** What is held, and what is not any more while its handler runs on. */
  all(): Held[] {
    return [...this.byId.values(), ...this.superseded]
  }

  /** How many `all` has. */
  get watched(): number {
    return this.byId.size + this.superseded.size
  }

  has(held: Held): boolean {
    return this.byId.get(idKey(held.lease.id)) === held
  }

  /**
   * A document that was just claimed: to the back of the line. One that was held already has been lost meanwhile (this process
   * was paused for longer than its lease lasted): that claim is over, and its handler is asked to stop.
   */
  add(held: Held): void {
    const key = idKey(held.lease.id)
    const before = this.byId.get(key)
    if (before) this.supersede(before)
    this.byId.set(key, held)
    if (!before) this.bytesOfIds += idBytes(held.lease.id)
    if (this.isForThread(held)) this.forThreads += 1
    this.queue(held)
  }

  /** A held one whose next step may begin. */
  queue(held: Held): void {
    if (this.isForThread(held)) this.threadLine.push(held)
    else this.line.push(held)
  }

  /** The first of the line, which leaves it. Those that wait for a thread hold up nobody else. */
  next(threadIsFree: boolean): Held | undefined {
    const forThread = threadIsFree ? this.threadLine[0] : undefined
    const forLoop = this.line[0]
    if (!forThread) return this.line.shift()
    return forLoop && forLoop.queuedAtMs < forThread.queuedAtMs ? this.line.shift() : this.threadLine.shift()
  }

  /** All that hasn't begun, which leaves the line. */
  takeQueued(): Held[] {
    return [...this.line.splice(0), ...this.threadLine.splice(0)]
  }

  drop(held: Held): void {
    held.lease.end()
    this.superseded.delete(held)
    if (this.has(held)) {
      this.byId.delete(idKey(held.lease.id))
      this.bytesOfIds -= idBytes(held.lease.id)
      if (this.isForThread(held)) this.forThreads -= 1
    }
    if (this.byId.size === 0) for (const resolve of this.waiters.splice(0)) resolve()
  }

  private supersede(before: Held): void {
    before.lease.end()
    if (this.isForThread(before)) this.forThreads -= 1
    if (!before.run) return
    before.run.abort('lease lost')
    this.superseded.add(before)
  }

  private isForThread(held: Held): boolean {
    return this.threadPhases.has(held.phase.name)
  }

  /** Resolves when nothing is held. */
  async empty(): Promise<void> {
    while (this.byId.size > 0) await new Promise<void>((resolve) => this.waiters.push(resolve))
  }
}
