import type { Clock } from '../../time/index.js'
import { idBytes, idKey } from '../documents/values.js'
import type { PhaseMemory } from './phase-memory.js'
import { type Attempt, type Candidates, eachList, type Reach, type SelectionPolicy } from './selection.js'

const FIRST_PAUSE_MS = 5_000
const LAST_PAUSE_MS = 600_000
/** The number that is remembered, 15 MB at most; a whole collection may refuse. */
const MOST = 100_000
/** The number that is named in each look and claim; any more are read, and passed over here. */
const MOST_NAMED = 1_000
const MOST_NAMED_BYTES = 100_000

interface Refusing {
  readonly refusals: number
  readonly untilMs: number
}

/** The most that a claim takes where some have just refused, because each may cost a command of its own. */
const MOST_BESIDE_REFUSALS = 250
/** The number of candidates that are then read in addition, to be tried in place of others that refuse. */
const SPARE = 250

/**
 * Documents that this replica leaves alone for a while because they refuse its writes; each replica has its own pauses. The pause grows with each
 * refusal: 5 s, 10 s, 20 s, at most 10 min. None of this is stored: a document that refuses writes can't hold it. Documents that people have
 * paused (`leaveAlone`) are passed over in the same way.
 */
export class RefusingDocuments implements SelectionPolicy {
  private readonly byKey = new Map<string, Refusing>()
  private readonly named = new Map<string, unknown>()
  private namedBytes = 0
  private leftAlone: ReadonlyMap<string, unknown> = new Map()

  constructor(private readonly clock: Clock) {}

  reach({ newestFirst }: PhaseMemory): Reach {
    const without = { without: this.ids(), passed: this.unnamed }
    return newestFirst === undefined ? without : { ...without, most: MOST_BESIDE_REFUSALS, spare: SPARE, newestFirst }
  }

  /** Replaces the documents that people have paused. Returns true if one of the former list is no longer paused. */
  leaveAlone(ids: readonly unknown[]): boolean {
    if (ids.length === 0 && this.leftAlone.size === 0) return false
    const before = this.leftAlone
    this.leftAlone = new Map(ids.map((id) => [idKey(id), id]))
    return [...before.keys()].some((key) => !this.leftAlone.has(key))
  }

  /** Chooses. Those whose pause is over are tried again, apart from the others. */
  choose(_memory: PhaseMemory, candidates: Candidates): Candidates {
    if (this.size === 0 && this.leftAlone.size === 0) return candidates
    const retries = [...candidates.retries]
    const others = eachList(candidates, (documents) =>
      documents.filter((document) => {
        const id: unknown = document['_id']
        if (!this.isSuspect(id)) return true
        if (!this.isPaused(id)) retries.push(document)
        return false
      }),
    )
    return { ...others, retries }
  }

  learn(memory: PhaseMemory, { hasRefused }: Attempt): void {
    memory.newestFirst = hasRefused ? !memory.newestFirst : undefined
  }

  /** Notes that these have refused a claim: others of the phase may do so, and one command for each is cheaper than several that fail. */
  refusedIn(memory: PhaseMemory, refused: readonly { readonly id: unknown }[]): void {
    for (const { id } of refused) this.add(id)
    if (refused.length > 0) memory.newestFirst ??= false
  }

  /**
   * Notes that a claim ran out of time at it, because it is locked or the server is slow: it is tried apart, and left alone if that is no better.
   */
  stuckAt(id: unknown): void {
    if (this.isSuspect(id)) this.add(id)
    else this.remember(id, { refusals: 0, untilMs: 0 })
  }

  get size(): number {
    return this.byKey.size
  }

  /** The number of them that `ids` doesn't name: a read that is to find others must take that many more. */
  get unnamed(): number {
    return this.byKey.size - this.named.size
  }

  /** Documents that are still paused and not to be looked for: all that people have paused, and the first thousand of the others. */
  ids(): unknown[] {
    return [...this.leftAlone.values(), ...this.refusedIds()]
  }

  /** The same without those that people have paused. */
  refusedIds(): unknown[] {
    if (this.named.size === 0) return []
    const now = this.clock.monotonicMs()
    return [...this.named].filter(([key]) => this.byKey.get(key)!.untilMs > now).map(([, id]) => id)
  }

  /** True if it is still paused. */
  isPaused(id: unknown): boolean {
    if (this.byKey.size === 0 && this.leftAlone.size === 0) return false
    const key = idKey(id)
    const known = this.byKey.get(key)
    return this.leftAlone.has(key) || (known !== undefined && known.untilMs > this.clock.monotonicMs())
  }

  /** True if it is paused, or has refused before: after that it is tried apart from others, so that it doesn't hold them up. */
  isSuspect(id: unknown): boolean {
    if (this.byKey.size === 0 && this.leftAlone.size === 0) return false
    const key = idKey(id)
    return this.leftAlone.has(key) || this.byKey.has(key)
  }

  /** Notes that it has refused a write (once more). */
  add(id: unknown): void {
    const refusals = (this.byKey.get(idKey(id))?.refusals ?? 0) + 1
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (refusals - 1), LAST_PAUSE_MS)
    this.remember(id, { refusals, untilMs: this.clock.monotonicMs() + pauseMs })
  }

  /** Remembers a document. A full list takes no more: the document is then tried again at the next look. */
  private remember(id: unknown, refusing: Refusing): void {
    const key = idKey(id)
    if (!this.byKey.has(key) && this.byKey.size >= MOST && !this.forgetOldest()) return
    this.byKey.delete(key) // to the end: the first is the one whose last refusal is the oldest
    this.byKey.set(key, refusing)
    if (!this.named.has(key)) this.name(key, id)
  }

  /** Forgets a document that takes writes again, or that another replica has taken. */
  remove(id: unknown): void {
    if (this.byKey.size === 0) return
    this.forget(idKey(id))
  }

  /** Forgets one that wasn't seen again after its pause: it is gone, or another replica has taken it. */
  private forgetOldest(): boolean {
    const [[key, { untilMs }]] = this.byKey as unknown as [[string, Refusing]]
    if (untilMs + LAST_PAUSE_MS > this.clock.monotonicMs()) return false
    this.forget(key)
    return true
  }

  private forget(key: string): void {
    this.byKey.delete(key)
    if (!this.named.has(key)) return
    this.namedBytes -= idBytes(this.named.get(key))
    this.named.delete(key)
  }

  private name(key: string, id: unknown): void {
    const bytes = idBytes(id)
    if (this.named.size >= MOST_NAMED || this.namedBytes + bytes > MOST_NAMED_BYTES) return
    this.named.set(key, id)
    this.namedBytes += bytes
  }
}
