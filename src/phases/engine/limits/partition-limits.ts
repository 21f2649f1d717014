import { BSON, type Document } from 'mongodb'
import { idKey, LEAST_PAUSE_MS, type SelectionPolicy, type ValueLimit } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import { keyLimits, keyNeedOf } from '../../definition/limits.js'
import type { LifecycleModel, LimitNeed } from '../../model/model.js'
import { askAgainMs } from './limit-lease.js'
import type { LimitLeases } from './limit-leases.js'

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

interface FullPartition {
  readonly value: unknown
  readonly bytes: number
  readonly sinceMs: number
  readonly untilMs: number
}

/**
 * The limits of the values of a field (`limitBy`, `each`). A claim takes slots for the documents that it has chosen, and tries only for those with a
 * slot. Values without a free slot are remembered for a moment, and claims don't read their documents.
 */
export class PartitionLimits {
  private readonly full = new Map<string, FullPartition>()

  constructor(
    private readonly model: LifecycleModel,
    private readonly leases: LimitLeases,
    private readonly clock: Clock,
  ) {}

  /** Begins one claim; its `over` ends it. */
  forClaim(): PartitionedClaim {
    return new PartitionedClaim(this)
  }

  /** The most documents of a value that one claim may take. */
  get each(): number {
    const { each } = this.model.settings
    return (typeof each === 'number' ? each : each?.slots) ?? Number.POSITIVE_INFINITY
  }

  needOf(document: Document): LimitNeed {
    return keyNeedOf(this.model, document)!
  }

  /** True if a need is for the limit of one of these values. */
  isOne({ key }: LimitNeed): boolean {
    return key?.of === keyLimits(this.model.name, this.model.settings.limitBy!)
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
  get againInMs(): number {
    const now = this.clock.monotonicMs()
    let soonestMs = Number.POSITIVE_INFINITY
    for (const { untilMs } of this.full.values()) if (untilMs > now) soonestMs = Math.min(soonestMs, untilMs - now)
    return Math.max(LEAST_PAUSE_MS, soonestMs)
  }

  /** Forgets that a value was full: a slot of it has been given back here. */
  released(need: LimitNeed): void {
    this.full.delete(need.limit)
  }

  /** Takes slots for up to `most` documents of one value, and returns the number of documents; fewer: the value is full for a while. */
  async take(need: LimitNeed, document: Document, most: number): Promise<number> {
    const { count, isAllHere } = await this.leases.takeOf(need, most)
    if (count < most || isAllHere) {
      const value: unknown = document[this.model.settings.limitBy!] ?? null
      const now = this.clock.monotonicMs()
      const sinceMs = (count === 0 && this.full.get(need.limit)?.sinceMs) || now
      const waitedMs = now - sinceMs
      const othersMs = Math.max(askAgainMs(waitedMs), this.leases.againInMs({ limits: [need] }))
      const { size } = this.full
      const oftenMs = size / MOST_PER_MS.often
      const onlyPeopleMs = Math.max(oftenMs, ONLY_PEOPLE_MS)
      const leastMs = isAllHere ? onlyPeopleMs : Math.min(onlyPeopleMs, othersMs)
      const longMs = Math.max(oftenMs, Math.min(size / MOST_PER_MS.seldom, ONLY_PEOPLE_MS))
      const pauseMs = Math.max(leastMs, size / MOST_PER_MS.first, Math.min(waitedMs, longMs))
      this.full.set(need.limit, { value, bytes: BSON.calculateObjectSize({ value }), sinceMs, untilMs: now + pauseMs })
    }
    return count
  }

  releaseUnused(need: LimitNeed, by: string | undefined): void {
    this.released(need)
    this.leases.releaseUnused({ limits: [need] }, 1, by)
  }
}

/** The documents that one claim has slots for. */
export class PartitionedClaim implements SelectionPolicy, ValueLimit {
  private readonly admitted = new Map<string, LimitNeed>()
  /** The number of documents that have got places, by limit. */
  private readonly placedOf = new Map<string, number>()
  /** True if it has left documents because of their values. */
  heldBack = false
  /** True if none of the documents that it has chosen got a slot. */
  wasStarved = false

  constructor(private readonly partitions: PartitionLimits) {}

  /** Admits no more documents of a value than can have slots, so that they take no places from others. */
  admits(document: Document): boolean {
    const need = this.partitions.needOf(document)
    const isAdmitted = (this.placedOf.get(need.limit) ?? 0) < this.partitions.each && !this.partitions.isFull(need)
    this.heldBack ||= !isAdmitted
    return isAdmitted
  }

  placed(document: Document): void {
    const { limit } = this.partitions.needOf(document)
    this.placedOf.set(limit, (this.placedOf.get(limit) ?? 0) + 1)
  }

  full(): readonly unknown[] {
    return this.partitions.fullValues()
  }

  async admit(documents: readonly Document[]): Promise<readonly Document[]> {
    const needs = new Map(documents.map((document) => [document, this.partitions.needOf(document)]))
    const byLimit = Map.groupBy(documents, (document) => needs.get(document)!.limit)
    const admitted = await Promise.allSettled(
      [...byLimit.values()].map(async (some) => {
        const need = needs.get(some[0]!)!
        const count = await this.partitions.take(need, some[0]!, some.length)
        const these = some.slice(0, count)
        this.heldBack ||= count < some.length
        for (const { _id } of these) this.admitted.set(idKey(_id), need)
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
   * Hands over the slot of a document that was won: its holder gives it back. Undefined: it has no slot, or that of a value that it no longer has.
   * @param document undefined: it can't be read
   */
  takenFor(key: string, document: Document | undefined): LimitNeed | undefined {
    const need = this.admitted.get(key)
    if (!need || (document && need.limit !== this.partitions.needOf(document).limit)) return undefined
    this.admitted.delete(key)
    return need
  }

  /** Gives back the slots that the claim had no use for. @param by the waiter that has claimed; undefined: it got nothing */
  over(by: string | undefined): void {
    for (const need of this.admitted.values()) this.partitions.releaseUnused(need, by)
    this.admitted.clear()
  }
}
