import {
  type Claimed,
  type ClaimResult,
  Claims,
  idKey,
  MissingIndex,
  nothingClaimed,
  type WorkSplit,
} from '../../../lock/index.js'
import type { LimitNeed } from '../../model/model.js'
import { readProjection } from '../../model/settings.js'
import { OutageLog } from '../../reporting/bounded-log.js'
import type { PrefetchTargets } from '../concurrency/prefetch-target.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import type { HeldDocuments } from '../lease/held.js'
import type { SlotWaiter } from '../limits/limit-leases.js'
import { Admission, type ClaimAdmission } from './admission.js'
import type { CrashIsolation, IsolatedClaim } from './crash-isolation.js'
import type { Blocked, ClaimReport, PhaseQueue } from './phase-queue.js'
import { PhaseQueues } from './phase-queues.js'

/** The most claims in a row that may win none of their candidates: after one more, the next tick looks again. */
const MOST_LOST_CLAIMS = 20

export interface ClaimerOptions {
  readonly isolation: CrashIsolation
  /** The split of due documents among the replicas. */
  readonly workSplit: WorkSplit
  readonly held: HeldDocuments
  readonly prefetchTargets: PrefetchTargets
  readonly outage: OutageLog
  /** Called with documents as soon as they have been won, before their claim is over. */
  readonly onWon: (phase: string, claimed: readonly Claimed[], admission?: ClaimAdmission) => void
}

/** Claims the due documents of a lifecycle's phases while there is room, one claim at a time. */
export class Claimer {
  private readonly queues: PhaseQueues
  /** The number of claims that have failed since the start, and the error of the last one. */
  readonly failures = { count: 0, last: undefined as unknown }
  /** The outage of a missing claim index: over only when a query for candidates succeeds, whatever else works in the meantime. */
  private readonly noIndex: OutageLog
  /** The number of documents that the last claim with a look for candidates had to leave because of isolation. */
  private passedOver = 0
  private readonly claims: Claims
  /** Undefined: no document of the lifecycle needs slots. */
  private readonly admission: Admission | undefined
  /** The claim under way, if any. */
  current: Promise<void> | undefined
  private stopped = false

  constructor(
    private readonly env: LifecycleEnvironment,
    private readonly options: ClaimerOptions,
  ) {
    const { model, clock, logger, limitLeases } = env
    const { isolation, held, workSplit, outage } = options
    this.queues = new PhaseQueues(model.phases.keys(), {
      clock,
      isPaused: (phase) => this.isPaused(phase),
      onOffered: () => this.claimIfRoom(),
    })
    this.noIndex = new OutageLog(`${model.name}: claiming`, clock, logger)
    this.claims = new Claims({
      ...env,
      workSplit,
      projection: readProjection(model.settings),
      order: model.settings,
      onRetry: (error) => outage.failed(error),
      isOver: () => this.stopped,
    })
    this.admission = Admission.of(model, limitLeases, clock)
    const { progress } = model.settings
    const claims = () =>
      held.all().map(({ document, claimedAtMs }) => ({
        claims: Number(document[progress]?.claims ?? 1),
        claimedAtMs,
      }))
    isolation.join(claims, model.settings, () => this.queues.freed('isolation', () => true))
    const { admission } = this
    // Slots that a phase gave back itself are no reason to claim again.
    const canUse = ({ phase, slots }: PhaseQueue, needs: readonly LimitNeed[], by: SlotWaiter | undefined) =>
      slots !== by && admission!.needsOneOf(phase, needs)
    if (admission) limitLeases.onFree((needs, by) => this.queues.freed('limits', (queue) => canUse(queue, needs, by)))
  }

  /** The reason why nothing can be claimed while the claim index is missing; undefined: it isn't missing. */
  get problem(): string | undefined {
    const error = this.noIndex.lastError
    return error instanceof MissingIndex ? error.message : undefined
  }

  /** True if documents are known to be due that no replica has claimed yet. */
  get othersDue(): boolean {
    return this.queues.areDue
  }

  /** True if the last claim of a phase left more than it could take: this replica has work enough for now. */
  get hasBacklog(): boolean {
    return this.queues.haveBacklog
  }

  /** True if one more document of a phase could be claimed now: there is room, and no claim is under way that would take it. */
  hasRoomFor(phase: string): boolean {
    return !this.current && this.roomFor(phase) > 0
  }

  /** True if the due documents of a phase wait for slots of a limit. */
  waitsForSlots(phase: string): boolean {
    return this.queues.of(phase)?.isBlockedBy('limits') ?? false
  }

  /** True if the last claim of a phase found nothing that it could try for. */
  foundNothing(phase: string): boolean {
    return this.queues.of(phase)?.isFruitless ?? false
  }

  /** Offers phases with due documents: they are claimed while there is room, now and whenever some becomes free. */
  offer(phases: readonly string[]): void {
    this.queues.offer(phases)
    // Without the index, failed phases are offered even if nothing is due any more: otherwise no claim would notice that it is back.
    if (this.noIndex.lasting) this.queues.offerFailed()
    this.claimIfRoom()
  }

  /** Takes the result of a look, which found due documents in these phases only: all others no longer wait for slots. */
  found(due: ReadonlySet<string>): void {
    for (const { slots } of this.queues.found(due)) this.env.limitLeases.withdraw(slots)
  }

  /** Returns those of the phases where a look has just found something due that have been left due for a while: their documents are to be dated. */
  leftDue(due: ReadonlySet<string>): string[] {
    return this.queues.leftDue(due)
  }

  /** Offers a phase after `ms`, when a document of it comes due. */
  offerIn(phase: string, ms: number): void {
    this.queues.of(phase)?.dueIn(ms, this.now())
    this.queues.setTimer()
  }

  /**
   * Takes documents of a phase that are reported to be due. They are claimed by `_id` if that is possible immediately and they jump no queue;
   * otherwise their phase is offered.
   */
  offerNamed(phase: string, ids: readonly unknown[]): void {
    const queue = this.queues.of(phase)
    if (!queue || this.stopped || this.isPaused(phase)) return
    const { isolation, workSplit } = this.options
    const isFree =
      !this.admission?.isNeededIn(phase) &&
      !this.current &&
      !this.othersDue &&
      !this.hasBacklog &&
      this.roomFor(phase) >= ids.length &&
      isolation.isOpen
    if (isFree) this.run(() => this.takeNamed(queue, ids))
    else {
      // They may not be stored yet: if the next claim comes too early, another one follows before the tick.
      if (this.roomFor(phase) > 0) queue.expects(ids.map(idKey).filter((key) => workSplit.isOwn(key, phase)))
      this.offer([phase])
    }
  }

  /** Notes another replica's document whose time is up already: if it is due now, it is claimed like one that has been there for long. */
  waitedFor(phase: string, key: string): void {
    const queue = this.queues.of(phase)
    if (queue) this.options.workSplit.waitedFor(queue.memory, key)
  }

  /** Claims while there is room. Call it whenever there may be more room than before. */
  claimIfRoom(): void {
    if (!this.current && this.next()) this.run(() => this.claimWhileRoom())
  }

  private run(work: () => Promise<void>): void {
    this.current = work().finally(() => {
      this.current = undefined
      this.queues.setTimer()
      this.claimIfRoom()
    })
  }

  /** Begins no more claims; resolves when the one under way has ended. */
  async stop(): Promise<void> {
    this.stopped = true
    this.queues.stop()
    await this.current
  }

  private now(): number {
    return this.env.clock.monotonicMs()
  }

  /** True if no document of a phase may be claimed. After it is resumed, a look offers it again. */
  private isPaused(phase: string): boolean {
    return this.env.paused().has(phase)
  }

  private roomFor(phase: string): number {
    if (this.isPaused(phase)) return 0
    const { prefetchTargets, held } = this.options
    const kind = this.env.kindOf(phase)
    return held.isFull ? 0 : prefetchTargets[kind].toClaim(held.sizeOf(kind))
  }

  private next(): PhaseQueue | undefined {
    return this.queues.next((phase) => this.roomFor(phase) > 0)
  }

  private async takeNamed(queue: PhaseQueue, ids: readonly unknown[]): Promise<void> {
    const { isolation } = this.options
    const isolated = isolation.forClaim(this.env.model.settings, this.passedOver)
    isolated.own.total += ids.length // none of them is a suspect
    const result = await this.claim(queue, isolated, (won) => this.claims.claimNamed(queue.memory, ids, won))
    if (!result) return
    // The ring may have come before they were stored.
    if (result.notFound > 0) queue.retryIn(0, this.now())
    if (result.left > 0) queue.retryIn(result.againInMs, this.now())
  }

  private async claimWhileRoom(): Promise<void> {
    let allLost = 0
    for (let queue = this.next(); queue; queue = this.next()) {
      const result = await this.claimFrom(queue)
      this.queues.setTimer()
      if (!result) continue
      allLost = result.candidates > 0 && result.lost === result.candidates ? allLost + 1 : 0
      if (allLost > MOST_LOST_CLAIMS) this.queues.forget()
    }
  }

  /** Claims due documents of a phase, once: looks, chooses, admits, claims. Undefined: the claim failed. */
  private async claimFrom(queue: PhaseQueue): Promise<ClaimResult | undefined> {
    const { env } = this
    const { phase } = queue
    const room = this.roomFor(phase)
    queue.begins()
    const admission = this.admission?.forClaim(queue)
    if (admission) queue.waits('limits') // before any request: its answer doesn't know of slots that are given back later
    const isolated = this.options.isolation.forClaim(env.model.settings, this.passedOver)
    let claimed = 0
    let limit = room
    const send = async (won: (some: readonly Claimed[]) => void) => {
      limit = admission ? await admission.places(room) : room
      if (limit === 0) return nothingClaimed
      const count = (some: readonly Claimed[]) => {
        claimed += some.length // even if a later command of the claim fails
        won(some)
      }
      const policies = admission?.hasKeys ? [admission, isolated] : [isolated]
      const result = await this.claims.claimBatch(queue.memory, limit, count, policies, admission)
      this.noIndex.succeeded()
      return result
    }
    const result = await this.claim(queue, isolated, send, admission)
    admission?.over(claimed)
    // A claim that failed is left to the next look.
    if (!result || !admission?.obstacle) queue.waitsNoLonger('limits')
    // It lacked no slots: phases that came later needn't wait for it.
    if (result && admission && !admission.isExhausted) env.limitLeases.withdraw(queue.slots)
    if (!result) return undefined
    queue.ends(this.reportOf(result, limit, claimed, isolated, admission), this.now(), this.queues.nextTicket())
    return result
  }

  private reportOf(
    result: ClaimResult,
    limit: number,
    won: number,
    isolated: IsolatedClaim,
    admission?: ClaimAdmission,
  ): ClaimReport {
    const { isolation } = this.options
    // Isolation kept some due documents from being claimed. If the one that was to be alone has no slot of its value, the others needn't wait for it.
    const makesWay = isolated.passedOver && admission?.wasStarved && isolated.own.isQuiet && isolation.makesWay()
    const isolating: Blocked | false = !!isolated.passedOver && {
      by: 'isolation',
      notBeforeMs: makesWay ? 0 : isolation.againInMs,
    }
    return {
      won,
      wonKeys: () => result.claimed.map(({ lease }) => lease.key),
      isFruitless: result.candidates === 0,
      hasMore: makesWay || (limit > 0 && mayHaveMore(result, limit)),
      othersInMs: result.left > 0 ? result.againInMs : undefined,
      obstacles: [admission?.obstacle ?? [], isolating || []].flat(),
    }
  }

  /**
   * Carries out one claim, of documents that may be held together with all others. Undefined: it failed, and all due documents are forgotten, or its
   * phase is paused.
   */
  private async claim<Result extends ClaimResult>(
    queue: PhaseQueue,
    isolated: IsolatedClaim,
    send: (won: (claimed: readonly Claimed[]) => void) => Promise<Result>,
    admission?: ClaimAdmission,
  ): Promise<Result | undefined> {
    const { isolation, outage, onWon } = this.options
    const { phase } = queue
    try {
      await this.env.keepTermsFresh()
      if (this.isPaused(phase)) {
        queue.forgets() // the pause has just been read
        return undefined
      }
      const result = await send((claimed) => onWon(phase, claimed, admission))
      outage.succeeded()
      this.report(phase, result)
      return result
    } catch (error) {
      this.queues.forget()
      // Other phases go first next time: this one's documents may be the cause.
      if (!this.isPaused(phase)) queue.fails()
      this.failedWith(error)
      return undefined
    } finally {
      isolation.over(isolated)
      this.passedOver = isolated.passedOver ?? this.passedOver
      if (isolated.passedOver) {
        queue.waits('isolation')
        isolation.isWaitedFor = true
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
    if (claimed.length > 0) this.options.prefetchTargets[kindOf(phase)].adapt()
    if (result.broken.length + result.odd.length + result.refused.length > 0) broken.claimed(result)
    if (candidates > 0) observer.claimed({ lifecycle: model.name, phase, claimed: claimed.length, lost })
    // Another replica, unknown to the last look, claims here.
    if (lost > Math.max(1, candidates / 20)) this.env.lookSoon()
  }
}

/**
 * True if another claim should follow immediately: this one got what it asked for or, where it takes only a share of the due documents, enough to
 * make another query for candidates worthwhile.
 */
const mayHaveMore = ({ candidates, more, cut }: ClaimResult, limit: number): boolean =>
  cut || candidates >= limit || (more && candidates >= limit / 4)
