import {
  type Claimant,
  type Claimed,
  type ClaimResult,
  Claims,
  idKey,
  MissingIndex,
  type WorkSplit,
} from '../../../lock/index.js'
import type { LimitNeed, Phase } from '../../model/model.js'
import { readProjection } from '../../model/settings.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import type { HeldDocuments } from '../lease/held-documents.js'
import type { KeyedClaim } from '../limits/key-limits.js'
import type { Capacities } from '../places/capacity.js'
import { OutageLog } from '../report/outage-log.js'
import { Wakeups } from '../wake/wakeups.js'
import type { Admission, Company } from './company.js'

/** After this many claims in a row that won none of their candidates, the next tick looks again. */
const MOST_LOST_CLAIMS = 20

export interface ClaimerOptions {
  readonly claimant: Claimant
  readonly company: Company
  /** How due documents are shared with other replicas. */
  readonly workSplit: WorkSplit
  readonly held: HeldDocuments
  readonly capacities: Capacities
  readonly outage: OutageLog
  /** Asks for a look ahead of the next tick. */
  readonly lookSoon: () => void
  /** Called with documents as soon as they have been won, before their claim is over. */
  readonly onWon: (phase: string, claimed: readonly Claimed[], keyed?: KeyedClaim) => void
}

/** Takes documents of the phases in which something is due, as long as there is room. One claim at a time. */
export class Claimer {
  private readonly due: string[] = []
  /** Phases of which the last claim found more than it could take. */
  private readonly leftBehind = new Set<string>()
  /** By phase: keys of documents in this replica's share that were rung for while it claimed others; they may not be stored yet. */
  private readonly awaited = new Map<string, Set<string>>()
  /** Phases of which the last claim found nothing that it could try for. */
  private readonly fruitless = new Set<string>()
  /** Phases of which no document could be claimed last time, as a limit had no slot. */
  private readonly slotless = new Set<string>()
  /** Phases of which the last claim failed. */
  private readonly failed = new Set<string>()
  /** How many claims have failed since the start, and of what the last one. */
  readonly failures = { count: 0, last: undefined as unknown }
  /** The outage of a missing claim index: over only when a query for candidates succeeds, whatever else works meanwhile. */
  private readonly noIndex: OutageLog
  /** How many documents the last claim that looked for candidates had to leave. */
  private passedOver = 0
  private readonly claims: Claims
  private readonly wakeups: Wakeups
  /** The claim under way, if any. */
  current: Promise<void> | undefined
  private stopped = false

  constructor(
    private readonly env: LifecycleEnvironment,
    private readonly options: ClaimerOptions,
  ) {
    const { model, clock, logger } = env
    const { claimant, workSplit, outage } = options
    this.noIndex = new OutageLog(`${model.name}: claiming`, clock, logger)
    this.wakeups = new Wakeups(clock, (phase) => this.offer([phase]))
    this.claims = new Claims({
      ...env,
      claimant,
      workSplit,
      projection: readProjection(model.settings),
      order: model.settings,
      onRetry: (error) => outage.failed(error),
      isOver: () => this.stopped,
    })
  }

  /** Why nothing can be claimed, where the claim index is missing. */
  get problem(): string | undefined {
    const error = this.noIndex.lastError
    return error instanceof MissingIndex ? error.message : undefined
  }

  /** Whether documents are known to be due that nobody has claimed yet. */
  get othersDue(): boolean {
    return this.due.some((phase) => !this.isPaused(phase))
  }

  /** Whether the last claim left more behind than it could take: this replica has work enough for now. */
  get hasBacklog(): boolean {
    return this.leftBehind.size > 0
  }

  /** Whether one more document of a phase could be claimed now: there is room, and no claim under way that takes it. */
  hasRoomFor(phase: string): boolean {
    return !this.current && this.roomFor(phase) > 0
  }

  /** Whether what is due in a phase waits for slots of a limit. */
  waitsForSlots(phase: string): boolean {
    return this.slotless.has(phase)
  }

  /** Whether the last claim of a phase found nothing that it could try for. */
  foundNothing(phase: string): boolean {
    return this.fruitless.has(phase)
  }

  /** Takes phases in which something is due: claims as long as there is room, now and whenever some becomes free. */
  offer(phases: readonly string[]): void {
    if (this.stopped) return
    // Without the index, failed phases are offered even if nothing is due any more: otherwise nobody would notice that it is back.
    const failed = this.noIndex.lasting ? this.failed : []
    for (const phase of [...phases, ...failed])
      if (!this.due.includes(phase) && !this.isPaused(phase)) this.due.push(phase)
    this.claimIfRoom()
  }

  /** A look has found something due in these phases, and in no others: those no longer wait for slots. */
  found(due: ReadonlySet<string>): void {
    for (const phase of this.slotless) {
      if (due.has(phase)) continue
      this.slotless.delete(phase)
      this.wakeups.noRetry(phase)
      this.env.slots.noLonger(this.waiter(phase))
    }
  }

  /** Offers a phase in which something comes due after `ms`. */
  offerIn(phase: string, ms: number): void {
    if (!this.stopped) this.wakeups.in(phase, ms)
  }

  private tryAgainIn(phase: string, ms: number): void {
    if (!this.stopped) this.wakeups.retry(phase, ms)
  }

  /**
   * Documents of a phase that are said to be due: they are claimed by `_id` if that can be done at once and there is no queue that they
   * would jump; otherwise their phase is offered.
   */
  offerNamed(phase: string, ids: readonly unknown[]): void {
    if (this.stopped || this.isPaused(phase)) return
    const { company } = this.options
    const isFree =
      !this.limitsOf(phase) &&
      !this.isKeyed(phase) &&
      !this.current &&
      !this.othersDue &&
      !this.hasBacklog &&
      this.roomFor(phase) >= ids.length &&
      company.isOpen
    if (isFree) this.run(() => this.takeNamed(phase, ids))
    else {
      if (this.roomFor(phase) > 0) this.expectNamed(phase, ids)
      this.offer([phase])
    }
  }

  /** To be called whenever there may be more room than before. */
  claimIfRoom(): void {
    if (!this.current && this.hasRoom()) this.run(() => this.claimWhileRoom())
  }

  private run(work: () => Promise<void>): void {
    this.current = work().finally(() => {
      this.current = undefined
      this.claimIfRoom()
    })
  }

  /** No more claims; resolves when the one under way has come back. */
  async stop(): Promise<void> {
    this.stopped = true
    this.wakeups.stop()
    this.forget()
    await this.current
  }

  /** Forgets what is due: the next tick offers it again. */
  private forget(): void {
    this.due.length = 0
    this.leftBehind.clear()
    this.awaited.clear()
  }

  /** They may not be stored yet: a claim that comes too early is not the last one before the tick. */
  private expectNamed(phase: string, ids: readonly unknown[]): void {
    const awaited = this.awaited.get(phase) ?? new Set()
    this.awaited.set(phase, awaited)
    for (const key of ids.map(idKey)) if (this.options.workSplit.isOwn(key, phase)) awaited.add(key)
  }

  /** Whether a claim has missed anything that was rung for before its query. */
  private isMissed(awaited: ReadonlySet<string> | undefined, { claimed }: ClaimResult): boolean {
    if (!awaited) return false
    const found = new Set(claimed.map(({ lease }) => lease.key))
    return [...awaited].some((key) => !found.has(key))
  }

  private hasRoom(): boolean {
    return !this.stopped && this.due.some((phase) => this.roomFor(phase) > 0)
  }

  /** No document of it may be claimed; a look after it is resumed offers it again. */
  private isPaused(phase: string): boolean {
    return this.env.paused().has(phase)
  }

  private roomFor(phase: string): number {
    if (this.isPaused(phase)) return 0
    const { capacities, held } = this.options
    const kind = this.env.kindOf(phase)
    return held.isFull ? 0 : capacities[kind].room(held.sizeOf(kind))
  }

  /** Takes the first due phase that there is room for off the list, preferably one that didn't fail. */
  private nextPhase(): string {
    const open = this.due.filter((one) => this.roomFor(one) > 0)
    const phase = open.find((one) => !this.failed.has(one)) ?? open[0]!
    this.due.splice(this.due.indexOf(phase), 1)
    return phase
  }

  private async takeNamed(phase: string, ids: readonly unknown[]): Promise<void> {
    const result = await this.claim(phase, (admission, won) => {
      admission.own.total += ids.length // nobody suspects them
      return this.claims.claimNamed(phase, ids, won)
    })
    if (!result) return
    // Rung for while they are being stored, so they may not be there yet.
    if (result.notFound > 0) this.tryAgainIn(phase, 0)
    if (result.left > 0) this.tryAgainIn(phase, result.againInMs)
  }

  private async claimWhileRoom(): Promise<void> {
    let allLost = 0
    while (this.hasRoom()) {
      const phase = this.nextPhase()
      const room = this.roomFor(phase)
      const awaited = this.awaited.get(phase)
      this.awaited.delete(phase)
      const limit = this.limitsOf(phase) ? await this.takeSlots(phase, room) : room
      if (limit === 0) continue
      let claimed = 0
      const keyed = this.isKeyed(phase) ? this.env.keys?.forClaim() : undefined
      // Before it asks: what is given back meanwhile isn't in the answer.
      if (keyed) this.waitFor(phase, (need) => this.env.keys!.isOne(need))
      const result = await this.claim(
        phase,
        (admission, won) => {
          const count = (some: readonly Claimed[]) => {
            claimed += some.length // also if a later command of the claim fails
            won(some)
          }
          return this.claims.claimBatch(phase, limit, count, keyed ? [keyed, admission] : [admission], keyed)
        },
        keyed,
      )
      if (keyed) this.keyedIsOver(phase, keyed, claimed, !result)
      this.giveUnusedSlots(phase, limit, claimed)
      if (!result) {
        // Other phases go first next time: this one's documents may be the cause.
        if (!this.isPaused(phase)) this.failed.add(phase)
        continue
      }
      this.failed.delete(phase)
      this.noIndex.succeeded()
      if (result.candidates === 0) this.fruitless.add(phase)
      else this.fruitless.delete(phase)
      const isMore = mayHaveMore(result, limit)
      if (isMore) this.leftBehind.add(phase)
      else this.leftBehind.delete(phase)
      allLost = result.candidates > 0 && result.lost === result.candidates ? allLost + 1 : 0
      if (allLost > MOST_LOST_CLAIMS) this.forget()
      else if (isMore) this.offer([phase])
      else {
        if (this.isMissed(awaited, result)) this.tryAgainIn(phase, 0)
        if (result.left > 0) this.tryAgainIn(phase, result.againInMs)
      }
    }
  }

  private keyedIsOver(phase: string, keyed: KeyedClaim, claimed: number, hasFailed: boolean): void {
    keyed.over(claimed > 0 ? this.waiter(phase) : undefined)
    const waits = keyed.heldBack && !hasFailed // what has failed is left to the next look
    if (waits) this.tryAgainIn(phase, this.env.keys!.againInMs)
    else this.env.slots.notWaiting(this.waiter(phase))
    if (waits && claimed === 0) this.slotless.add(phase)
    else this.slotless.delete(phase)
  }

  /** Offers the phase when slots for what `isFor` names have been given back here. */
  private waitFor(phase: string, isFor: (need: LimitNeed) => boolean): void {
    this.env.slots.whenFree(this.waiter(phase), isFor, () => this.offer([phase]))
  }

  private waiter(phase: string): string {
    return `${this.env.model.name} ${phase}`
  }

  /** Whether its documents need a slot of their key: those of working phases, as with other limits. */
  private isKeyed(phase: string): boolean {
    return this.env.keys !== undefined && this.env.model.phases.get(phase)?.kind === 'working'
  }

  private limitsOf(phase: string): Phase | undefined {
    const known = this.env.model.phases.get(phase)
    return known?.limits ? known : undefined
  }

  /** Slots for so many documents of a phase; where there are none it is offered again when some are given back here, or by the next look. */
  private async takeSlots(phase: string, most: number): Promise<number> {
    const { slots, model } = this.env
    const limited = model.phases.get(phase)!
    const names = new Set(limited.limits!.map(({ limit }) => limit))
    try {
      // Before it asks: what is given back meanwhile isn't in the answer.
      this.waitFor(phase, ({ limit }) => names.has(limit))
      const count = await slots.take(limited, most, this.waiter(phase))
      if (count > 0) {
        this.slotless.delete(phase)
        slots.notWaiting(this.waiter(phase))
      } else {
        this.slotless.add(phase)
        this.tryAgainIn(phase, slots.againInMs(limited, this.waiter(phase)))
      }
      return count
    } catch (error) {
      this.failedWith(error)
      return 0
    }
  }

  private giveUnusedSlots(phase: string, taken: number, claimed: number): void {
    const limited = this.limitsOf(phase)
    const by = claimed > 0 ? this.waiter(phase) : undefined
    if (limited) this.env.slots.giveUnused(limited, taken - claimed, by)
  }

  /** One claim, of what may be held together with all else; undefined: it failed, and what is due is forgotten, or its phase is paused. */
  private async claim<Result extends ClaimResult>(
    phase: string,
    send: (admission: Admission, won: (claimed: readonly Claimed[]) => void) => Promise<Result>,
    keyed?: KeyedClaim,
  ): Promise<Result | undefined> {
    const { company, outage, onWon } = this.options
    const { model, keepTermsFresh } = this.env
    const admission = company.admission(model.settings, this.passedOver)
    try {
      await keepTermsFresh()
      if (this.isPaused(phase)) return undefined // as has just been read
      const result = await send(admission, (claimed) => onWon(phase, claimed, keyed))
      outage.succeeded()
      this.report(phase, result)
      return result
    } catch (error) {
      this.forget()
      this.failedWith(error)
      return undefined
    } finally {
      company.over(admission)
      this.passedOver = admission.passedOver ?? this.passedOver
      // Something due could not be claimed together with what is held.
      if (admission.passedOver) {
        company.whenThereIsRoom(model.name, phase, () => this.offer([phase]))
        // What was to be held alone has no slot of its value: others needn't wait for it.
        if (keyed?.wasInVain && admission.own.isQuiet && company.makesWay()) this.offer([phase])
        else if (company.againInMs > 0) this.tryAgainIn(phase, company.againInMs)
      }
    }
  }

  private failedWith(error: unknown): void {
    this.failures.count += 1
    this.failures.last = error
    const outage = error instanceof MissingIndex ? this.noIndex : this.options.outage
    outage.failed(error)
  }

  private report(phase: string, result: ClaimResult): void {
    const { model, observer, broken, kindOf } = this.env
    const { claimed, candidates, lost } = result
    if (claimed.length > 0) this.options.capacities[kindOf(phase)].adapt()
    broken.claimed(result)
    if (candidates > 0) observer.claimed({ lifecycle: model.name, phase, claimed: claimed.length, lost })
    // Another replica claims here that the last look didn't know of.
    if (lost > Math.max(1, candidates / 20)) this.options.lookSoon()
  }
}

/**
 * Whether to claim again at once: the claim got what it asked for or, where it takes only a share of what is due, enough to make another
 * query for candidates worthwhile.
 */
const mayHaveMore = ({ candidates, more, cut }: ClaimResult, limit: number): boolean =>
  cut || candidates >= limit || (more && candidates >= limit / 4)
