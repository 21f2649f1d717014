import type { Clock } from '../time/index.js'
import { idKey } from './id-key.js'

const FIRST_PAUSE_MS = 5_000
const LAST_PAUSE_MS = 600_000
/** Every look and claim names them, so there can't be any number. */
const MOST = 1_000

interface Skipped {
  readonly id: unknown
  refusals: number
  untilMs: number
}

/**
 * Documents that this replica leaves alone for a while because they refuse what it writes; others' pauses are their own.
 * The pause grows with each refusal: 5 s, 10 s, 20 s, at most 10 min. Nothing of it is stored: a refusing document can't
 * hold it.
 */
export class SkipList {
  private readonly byKey = new Map<string, Skipped>()

  constructor(private readonly clock: Clock) {}

  get size(): number {
    return this.byKey.size
  }

  /** Documents whose pause lasts: not to be looked for. */
  ids(): unknown[] {
    if (this.byKey.size === 0) return []
    const now = this.clock.monotonicMs()
    const ids: unknown[] = []
    for (const { id, untilMs } of this.byKey.values()) if (untilMs > now) ids.push(id)
    return ids
  }

  /** Whether it has refused before; when its pause is over it is tried alone, so that it holds up nobody. */
  isSuspect(id: unknown): boolean {
    return this.byKey.size > 0 && this.byKey.has(idKey(id))
  }

  /** It has refused a write (once more). A full list takes no more: then it is tried again at the next look. */
  add(id: unknown): void {
    const key = idKey(id)
    const known = this.byKey.get(key)
    if (!known && this.byKey.size >= MOST) return
    const refusals = (known?.refusals ?? 0) + 1
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (refusals - 1), LAST_PAUSE_MS)
    this.byKey.set(key, { id, refusals, untilMs: this.clock.monotonicMs() + pauseMs })
  }

  /** It takes writes again, or is somebody else's. */
  remove(id: unknown): void {
    if (this.byKey.size > 0) this.byKey.delete(idKey(id))
  }
}
