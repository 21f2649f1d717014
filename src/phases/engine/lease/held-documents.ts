import { idBytes } from '../../../lock/index.js'
import type { PlaceKind } from '../places/places.js'
import type { Held } from './held.js'

/** One more claim comes on top of that; a command holds 16 MB, and names each up to twice. */
const MOST_ID_BYTES = 4_000_000

/** What a replica holds of one lifecycle. */
export class HeldDocuments {
  private readonly byId = new Map<string, Held>()
  private readonly superseded = new Set<Held>()
  private readonly sizes: Record<PlaceKind, number> = { loop: 0, thread: 0 }
  private bytesOfIds = 0
  private waiters: (() => void)[] = []

  get size(): number {
    return this.byId.size
  }

  /** How many are held whose steps run in places of a kind. */
  sizeOf(kind: PlaceKind): number {
    return this.sizes[kind]
  }

  /** Whether the `_id`s of what is held are as many as one command can name: renewals name all of them. */
  get isFull(): boolean {
    return this.bytesOfIds > MOST_ID_BYTES
  }

  /** What is held, and what no longer is although its handler still runs. */
  all(): Held[] {
    return [...this.byId.values(), ...this.superseded]
  }

  /** How many `all` has. */
  get watched(): number {
    return this.byId.size + this.superseded.size
  }

  /** What is held under a key (`idKey`). */
  get(key: string): Held | undefined {
    return this.byId.get(key)
  }

  has(held: Held): boolean {
    return this.byId.get(held.lease.key) === held
  }

  /**
   * Adds a document that was just claimed. One that was held already was lost meanwhile (this process was paused for longer than its lease
   * lasted): that claim is over, and its handler is asked to stop.
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

  /** Resolves when nothing is held. */
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
