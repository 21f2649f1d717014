import { BSON, type Document } from 'mongodb'
import { idKey, LEAST_PAUSE_MS, type Admission as OfClaim, type SelectionPolicy } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import { keyLimits, keyNeedOf } from '../../definition/limits.js'
import type { LifecycleModel, LimitNeed } from '../../model/model.js'
import type { Limited, LimitLeases } from '../limits/limit-leases.js'
import { askAgainMs, type Blocked, type PhaseQueue } from './phase-queue.js'

/** The time that a key is remembered without another request: longer than it takes to ask about thousands. */
const REMEMBERED_MS = 60_000
/** The pause of a key whose slots are all in use here, or whose rate is slow: only a person could add some. */
const ONLY_PEOPLE_MS = 5_000
/**
 * The most full keys to ask about in a millisecond, when there are many. It is less (`seldom`) for keys that have been full for long, because each
 * costs about a command; but each is asked about within `ONLY_PEOPLE_MS`. With thousands of keys it takes longer still, at `often`, because a value
 * with free slots takes its turn among those that are asked about.
 */
const MOST_PER_MS = { first: 2, often: 0.2, seldom: 0.05 }
/** The most full values that a query for candidates names, and the most bytes of them. */
const MOST_NAMED = { values: 10_000, bytes: 500_000 }

interface FullKey {
  readonly value: unknown
  readonly bytes: number
  readonly sinceMs: number
  readonly untilMs: number
}

/**
 * The admission of a lifecycle's due documents under its limits: of the lifecycle, of a phase, of the value of a field (`limitBy`, `each`), and rates.
 * A claim asks once, for the documents that it has chosen, and tries only for those that have slots of all of their limits.
 *
 * Invariants: (1) a document is tried for only with its slots in use; (2) each slot that a claim has taken is handed over to a document that it has
 * won, or given back when it is over. Values without a free slot are remembered for a moment, and claims don't read their documents.
 */
export class Admission {
  private readonly full = new Map<string, FullKey>()

  /** Undefined: no document of the lifecycle needs slots. */
  static of(model: LifecycleModel, leases: LimitLeases, clock: Clock): Admission | undefined {
    const areLimited = [...model.phases.values()].some(({ limits }) => limits)
    return areLimited || model.settings.limitBy !== undefined ? new Admission(model, leases, clock) : undefined
  }

  constructor(
    private readonly model: LifecycleModel,
    readonly leases: LimitLeases,
    private readonly clock: Clock,
  ) {
    leases.onFree((needs) => this.forget(needs))
  }

  /** Begins one claim of a queue; its `over` ends it. Undefined: its documents need no slots. */
  forClaim(queue: Pick<PhaseQueue, 'phase' | 'slots'>): ClaimAdmission | undefined {
    const { limits } = this.phaseOf(queue.phase) ?? {}
    const hasKeys = this.hasKeys(queue.phase)
    return limits || hasKeys ? new ClaimAdmission(this, { limits }, queue, hasKeys) : undefined
  }

  /** True if documents of a phase need slots of a limit or a key. */
  isNeededIn(phase: string): boolean {
    return this.phaseOf(phase)?.limits !== undefined || this.hasKeys(phase)
  }

  /** True if documents of a phase need slots of one of these limits. */
  needsOneOf(phase: string, needs: readonly LimitNeed[]): boolean {
    const own = new Set(this.phaseOf(phase)?.limits?.map(({ limit }) => limit))
    const isKey = ({ key }: LimitNeed) => key?.of === keyLimits(this.model.name, this.model.settings.limitBy!)
    return needs.some((need) => own.has(need.limit) || (this.hasKeys(phase) && isKey(need)))
  }

  /** The most documents of a value that one claim may take. */
  get each(): number {
    const { each } = this.model.settings
    return (typeof each === 'number' ? each : each?.slots) ?? Number.POSITIVE_INFINITY
  }

  keyOf(document: Document): LimitNeed {
    return keyNeedOf(this.model, document)!
  }

  isFull(need: LimitNeed): boolean {
    const known = this.full.get(need.limit)
    return known !== undefined && known.untilMs > this.clock.monotonicMs()
  }

  /** Returns the values without a free slot, up to `MOST_NAMED`. */
  fullValues(): unknown[] {
    const now = this.clock.monotonicMs()
    for (const [limit, { untilMs }] of this.full) if (untilMs + REMEMBERED_MS <= now) this.full.delete(limit)
    const named: unknown[] = []
    let bytes = 0
    for (const one of this.full.values()) {
      if (one.untilMs <= now) continue
      bytes += one.bytes
      if (named.length >= MOST_NAMED.values || bytes > MOST_NAMED.bytes) break
      named.push(one.value)
    }
    return named
  }

  /** The time after which it is worth asking for the first of those again. */
  get keysOpenInMs(): number {
    const now = this.clock.monotonicMs()
    let soonestMs = Number.POSITIVE_INFINITY
    for (const { untilMs } of this.full.values()) if (untilMs > now) soonestMs = Math.min(soonestMs, untilMs - now)
    return Math.max(LEAST_PAUSE_MS, soonestMs)
  }

  /** Takes slots for up to `most` documents of one value, and returns the number of documents; fewer: the value is full for a while. */
  async takeKey(need: LimitNeed, document: Document, most: number): Promise<number> {
    const { count, isAllHere } = await this.leases.takeOf(need, most)
    if (count < most || isAllHere) {
      const value: unknown = document[this.model.settings.limitBy!] ?? null
      const now = this.clock.monotonicMs()
      const sinceMs = (count === 0 && this.full.get(need.limit)?.sinceMs) || now
      const untilMs =
        now + this.fullForMs(now - sinceMs, isAllHere, this.leases.againIn({ limits: [need] }).notBeforeMs)
      this.full.set(need.limit, { value, bytes: BSON.calculateObjectSize({ value }), sinceMs, untilMs })
    }
    return count
  }

  /** Forgets that values were full: slots of them have been given back here. */
  forget(needs: readonly LimitNeed[]): void {
    for (const { key, limit } of needs) if (key) this.full.delete(limit)
  }

  private fullForMs(waitedMs: number, isAllHere: boolean, nextStartMs: number): number {
    const { size } = this.full
    const oftenMs = size / MOST_PER_MS.often
    const onlyPeopleMs = Math.max(oftenMs, ONLY_PEOPLE_MS)
    const leastMs = isAllHere ? onlyPeopleMs : Math.min(onlyPeopleMs, Math.max(askAgainMs(waitedMs), nextStartMs))
    const longMs = Math.max(oftenMs, Math.min(size / MOST_PER_MS.seldom, ONLY_PEOPLE_MS))
    return Math.max(leastMs, size / MOST_PER_MS.first, Math.min(waitedMs, longMs))
  }

  private hasKeys(phase: string): boolean {
    return this.model.settings.limitBy !== undefined && this.phaseOf(phase)?.kind === 'working'
  }

  private phaseOf(phase: string) {
    return this.model.phases.get(phase)
  }
}

/** The slots of one claim. */
export class ClaimAdmission implements SelectionPolicy, OfClaim {
  /** The number of documents that slots of the phase's limits are in use for, and that it hasn't won yet. */
  private count = 0
  /** The room for documents, and the number of those that may have slots, as far as was known before the look. */
  private room = 0
  private bound = 0
  /** True if that many may have slots and no more, as far as was known then. */
  private isAll = false
  /** The slots of keys, by the documents that it tries for. */
  private readonly keyed = new Map<string, LimitNeed>()
  /** The number of documents that have got places, by key. */
  private readonly placedOf = new Map<string, number>()
  /** True if it has left documents because of a limit of their phase, so that it can admit no others in their place. */
  isExhausted = false
  /** True if it has left documents because of their keys. */
  private hasFullKeys = false
  /** True if none of the documents that it has chosen got a slot of their key. */
  wasStarved = false

  constructor(
    private readonly admission: Admission,
    private readonly phase: Limited,
    private readonly queue: Pick<PhaseQueue, 'slots'>,
    readonly hasKeys: boolean,
  ) {}

  /** The reason why it has left due documents; undefined: it has left none. */
  get obstacle(): Blocked | undefined {
    if (this.isExhausted) return { by: 'limits', ...this.admission.leases.againIn(this.phase) }
    const inMs = this.admission.keysOpenInMs
    return this.hasFullKeys ? { by: 'limits', notBeforeMs: inMs, withinMs: inMs } : undefined
  }

  /**
   * Bounds the choice by the slots that may be had. Where none is free as far as is known, they are requested here: a full limit then costs one
   * command each time and no look.
   * @returns the number of documents that are worth choosing, at most `room`
   */
  async places(room: number): Promise<number> {
    const { admission, phase, queue } = this
    this.room = room
    this.bound = phase.limits ? Math.min(room, admission.leases.free(phase, queue.slots)) : room
    this.isAll = admission.leases.areAllHere(phase)
    if (this.bound > 0) return this.bound
    this.count = await admission.leases.take(phase, room, queue.slots)
    this.bound = this.count
    this.isExhausted = this.count === 0
    return this.bound
  }

  /** Admits no more documents of a value than can have slots, so that they take no places from others. */
  admits(document: Document): boolean {
    if (!this.hasKeys) return true
    const need = this.admission.keyOf(document)
    const isAdmitted = (this.placedOf.get(need.limit) ?? 0) < this.admission.each && !this.admission.isFull(need)
    this.hasFullKeys ||= !isAdmitted
    return isAdmitted
  }

  placed(document: Document): void {
    if (!this.hasKeys) return
    const { limit } = this.admission.keyOf(document)
    this.placedOf.set(limit, (this.placedOf.get(limit) ?? 0) + 1)
  }

  full(): readonly unknown[] {
    return this.hasKeys ? this.admission.fullValues() : []
  }

  /** Takes slots for the documents that were chosen, and returns those that have all they need. */
  async admit(documents: readonly Document[]): Promise<readonly Document[]> {
    const { admission, phase, queue, count, room, bound } = this
    if (!phase.limits) this.count = documents.length
    else if (documents.length > count) {
      // Where it could choose no more than these, more may follow.
      const wanted = (this.isAll || documents.length < bound ? documents.length : room) - count
      this.count += await admission.leases.take(phase, documents.length - count, queue.slots, wanted)
    }
    const some = documents.slice(0, this.count)
    this.isExhausted ||= some.length < documents.length
    return this.hasKeys ? this.admitKeys(some) : some
  }

  private async admitKeys(documents: readonly Document[]): Promise<readonly Document[]> {
    const needs = new Map(documents.map((document) => [document, this.admission.keyOf(document)]))
    const byLimit = Map.groupBy(documents, (document) => needs.get(document)!.limit)
    const admitted = await Promise.allSettled(
      [...byLimit.values()].map(async (some) => {
        const need = needs.get(some[0]!)!
        const count = await this.admission.takeKey(need, some[0]!, some.length)
        const these = some.slice(0, count)
        this.hasFullKeys ||= count < some.length
        for (const { _id } of these) this.keyed.set(idKey(_id), need)
        return these
      }),
    )
    const won = new Set(admitted.flatMap((one) => (one.status === 'fulfilled' ? one.value : [])))
    const failed = admitted.find((one) => one.status === 'rejected')
    if (won.size === 0 && failed) throw failed.reason
    this.wasStarved = won.size < Math.min(1, documents.length)
    return documents.filter((document) => won.has(document))
  }

  /**
   * Hands over the slots of a document that was won: its holder gives them back. Undefined: it has none of its key, which its owner has changed.
   * @param document undefined: it can't be read
   */
  takenFor(key: string, document: Document | undefined): readonly LimitNeed[] | undefined {
    const { limits = [] } = this.phase
    const need = this.keyed.get(key)
    if (this.hasKeys && (!need || (document && need.limit !== this.admission.keyOf(document).limit))) return undefined
    this.keyed.delete(key)
    this.count -= 1
    return need ? [...limits, need] : limits
  }

  /** Gives back the slots that the claim had no use for. @param won the number of documents that it has won */
  over(won: number): void {
    const { leases } = this.admission
    const unused = { by: won > 0 ? this.queue.slots : undefined }
    leases.release(this.phase, this.count, unused)
    const keys = [...this.keyed.values()]
    for (const need of keys) leases.release({ limits: [need] }, 1, unused)
    this.admission.forget(keys)
    this.count = 0
    this.keyed.clear()
  }
}
