import { idBytes } from '../../../lock/index.js'
import type { StepKind } from '../concurrency/step-semaphore.js'
import type { Held } from './held.js'

/** The bytes of `_id`s after which no more is claimed. One more claim comes on top; a command holds 16 MB, and names each up to twice. */
const MOST_ID_BYTES = 4_000_000

/** The documents of one lifecycle that a replica holds. */
export class HeldDocuments {
  private readonly byId = new Map<string, Held>()
  private readonly superseded = new Set<Held>()
  private readonly sizes: Record<StepKind, number> = { loop: 0, thread: 0 }
  private bytesOfIds = 0
  private waiters: (() => void)[] = []

  get size(): number {
    return this.byId.size
  }

  /** The number of held documents whose steps run in places of a kind. */
  sizeOf(kind: StepKind): number {
    return this.sizes[kind]
  }

  /** True once the `_id`s of held documents fill one command: renewals name all of them. */
  get isFull(): boolean {
    return this.bytesOfIds > MOST_ID_BYTES
  }

  /** The held documents, and lost ones whose handlers still run. */
  all(): Held[] {
    return [...this.byId.values(), ...this.superseded]
  }

  /** The number of documents in `all`. */
  get watched(): number {
    return this.byId.size + this.superseded.size
  }

  /** The held document with a key (`idKey`). */
  get(key: string): Held | undefined {
    return this.byId.get(key)
  }

  has(held: Held): boolean {
    return this.byId.get(held.lease.key) === held
  }

  /**
   * Adds a document that was just claimed. One that was held already had been lost (this process was paused for longer than its lease lasted): that
   * claim is over, and its handler is asked to stop.
   */
  add(held: Held): void {
    const { key } = held.lease
    const before = this.byId.get(key)
    if (before) this.supersede(before)
    else this.bytesOfIds += idBytes(held.lease.id)
    this.byId.set(key, held)
    this.sizes[held.kind] += 1
  }

  drop(held: Held): void {
    held.lease.end()
    this.superseded.delete(held)
    if (this.has(held)) {
      this.byId.delete(held.lease.key)
      this.bytesOfIds -= idBytes(held.lease.id)
      this.sizes[held.kind] -= 1
    }
    if (this.byId.size === 0) for (const resolve of this.waiters.splice(0)) resolve()
  }

  /** Resolves when no document is held. */
  async empty(): Promise<void> {
    while (this.byId.size > 0) await new Promise<void>((resolve) => this.waiters.push(resolve))
  }

  private supersede(before: Held): void {
    before.lease.end()
    this.sizes[before.kind] -= 1
    if (!before.run) return
    before.run.abort('lease lost')
    this.superseded.add(before)
  }
}
