import type { Document } from 'mongodb'
import {
  type Candidates,
  eachList,
  idKey,
  LEAST_PAUSE_MS,
  type SelectionPolicy,
  type ValueLimit,
} from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import { keyNeedOf } from '../../definition/limits.js'
import type { LifecycleModel, LimitNeed } from '../../definition/model.js'
import type { Slots } from './slots.js'

/** So long a key without a free slot isn't asked about: others have some, which they may give back. */
const ASK_AGAIN_MS = 250
/** All of them are in use here, or its rate is a slow one: only people could make more. */
const ONLY_PEOPLE_MS = 5_000
/** With many of them, so many are asked about in a second at most. */
const MOST_PER_MS = 2
/** So many are named where others are read. */
const MOST_NAMED = 1_000

interface FullKey {
  readonly value: unknown
  readonly untilMs: number
}

/**
 * What each value of a field has (`limitBy`, `each`). A claim takes slots for the documents that it has chosen, and tries only for those that
 * have got one. Values without a free slot are remembered for a moment, and their documents left out of what claims read.
 */
export class KeyLimits {
  private readonly full = new Map<string, FullKey>()

  constructor(
    private readonly model: LifecycleModel,
    private readonly slots: Slots,
    private readonly clock: Clock,
  ) {}

  /** For one claim. To be ended with `over`. */
  forClaim(): KeyedClaim {
    return new KeyedClaim(this)
  }

  /** How many documents of a value one claim may take at most. */
  get each(): number {
    const { each } = this.model.settings
    return (typeof each === 'number' ? each : each?.slots) ?? Number.POSITIVE_INFINITY
  }

  needOf(document: Document): LimitNeed {
    return keyNeedOf(this.model, document)!
  }

  isFull(need: LimitNeed): boolean {
    const known = this.full.get(need.limit)
    return known !== undefined && known.untilMs > this.clock.monotonicMs()
  }

  /** Values without a free slot. */
  fullValues(): unknown[] {
    const now = this.clock.monotonicMs()
    for (const [limit, { untilMs }] of this.full) if (untilMs <= now) this.full.delete(limit)
    return [...this.full.values()].slice(0, MOST_NAMED).map(({ value }) => value)
  }

  /** After how long it is worth asking for those again. */
  get againInMs(): number {
    const now = this.clock.monotonicMs()
    return Math.max(LEAST_PAUSE_MS, Math.min(...[...this.full.values()].map(({ untilMs }) => untilMs - now)))
  }

  /** One has been given back here. */
  gaveBack(need: LimitNeed): void {
    this.full.delete(need.limit)
  }

  /** Slots for so many documents of one value; fewer: it is full for a while. */
  async take(need: LimitNeed, document: Document, most: number): Promise<number> {
    const { count, isAllHere } = await this.slots.takeOf(need, most)
    if (count < most || isAllHere) {
      const value: unknown = document[this.model.settings.limitBy!] ?? null
      const againMs = Math.max(ASK_AGAIN_MS, this.slots.againInMs({ limits: [need] }))
      const leastMs = isAllHere ? ONLY_PEOPLE_MS : Math.min(ONLY_PEOPLE_MS, againMs)
      const pauseMs = Math.max(leastMs, this.full.size / MOST_PER_MS)
      this.full.set(need.limit, { value, untilMs: this.clock.monotonicMs() + pauseMs })
    }
    return count
  }

  giveBack(need: LimitNeed): void {
    this.gaveBack(need)
    this.slots.give({ limits: [need] }, 1, true)
  }
}

/** The documents that one claim has slots for. */
export class KeyedClaim implements SelectionPolicy, ValueLimit {
  private readonly admitted = new Map<string, LimitNeed>()
  /** Whether it has left documents because of their values. */
  heldBack = false

  constructor(private readonly keys: KeyLimits) {}

  /** No more documents of a value than can have slots, so that they take no places from others. */
  choose(_phase: string, candidates: Candidates): Candidates {
    const counts = new Map<string, number>()
    const admits = (document: Document) => {
      const need = this.keys.needOf(document)
      const count = counts.get(need.limit) ?? 0
      counts.set(need.limit, count + 1)
      const isAdmitted = count < this.keys.each && !this.keys.isFull(need)
      this.heldBack ||= !isAdmitted
      return isAdmitted
    }
    const some = (documents: readonly Document[]) => documents.filter(admits)
    return { ...eachList(candidates, some), retries: some(candidates.retries) }
  }

  full(): readonly unknown[] {
    return this.keys.fullValues()
  }

  async admit(documents: readonly Document[]): Promise<readonly Document[]> {
    const needs = new Map(documents.map((document) => [document, this.keys.needOf(document)]))
    const byLimit = Map.groupBy(documents, (document) => needs.get(document)!.limit)
    const admitted = await Promise.allSettled(
      [...byLimit.values()].map(async (some) => {
        const need = needs.get(some[0]!)!
        const count = await this.keys.take(need, some[0]!, some.length)
        const these = some.slice(0, count)
        this.heldBack ||= count < some.length
        for (const { _id } of these) this.admitted.set(idKey(_id), need)
        return these
      }),
    )
    const won = new Set(admitted.flatMap((one) => (one.status === 'fulfilled' ? one.value : [])))
    const failed = admitted.find((one) => one.status === 'rejected')
    if (won.size === 0 && failed) throw failed.reason
    return documents.filter((document) => won.has(document))
  }

  /**
   * What a document that was won has got, which is its holder's to give back. Undefined: none, or that of a value that it no longer has.
   * @param document undefined: it can't be read
   */
  takenFor(key: string, document: Document | undefined): LimitNeed | undefined {
    const need = this.admitted.get(key)
    if (!need || (document && need.limit !== this.keys.needOf(document).limit)) return undefined
    this.admitted.delete(key)
    return need
  }

  /** Gives back what the claim had no use for. */
  over(): void {
    for (const need of this.admitted.values()) this.keys.giveBack(need)
    this.admitted.clear()
  }
}
