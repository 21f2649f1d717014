import {
  type Claimant,
  type Claimed,
  type ClaimResult,
  Claims,
  idKey,
  MissingIndex,
  type WorkSplit,
} from '../../../lock/index.js'
import { readProjection } from '../../definition/reads.js'
import type { LifecycleEnvironment } from '../environment.js'
import type { HeldDocuments } from '../lease/held-documents.js'
import { OutageLog } from '../report/outage-log.js'
import type { PlaceKind } from '../run/places.js'
import { Wakeups } from '../wake/wakeups.js'
import type { Capacity } from './capacity.js'
import type { Company } from './company.js'

/** After so many claims in a row that got nothing of what they tried for, the next tick looks again. */
const MOST_LOST_CLAIMS = 20

export interface ClaimerOptions {
  readonly claimant: Claimant
  readonly company: Company
  /** How due documents are shared with other replicas. */
  readonly workSplit: WorkSplit
  readonly held: HeldDocuments
  readonly capacities: Readonly<Record<PlaceKind, Capacity>>
  readonly outage: OutageLog
  /** Asks for a look ahead of the next tick. */
  readonly lookSoon: () => void
  /** Told of documents as soon as they have been won, before the claim that they belong to is over. */
  readonly onWon: (phase: string, claimed: readonly Claimed[]) => void
}

/** Takes documents of the phases in which something is due, as long as there is room. One claim at a time. */
export class Claimer {
  private readonly due: string[] = []
  /** Phases of which the last claim found more than it could take. */
  private readonly leftBehind = new Set<string>()
  /** By phase: keys of documents that fall to this replica and were rung for while it claimed others; they may not be stored yet. */
  private readonly awaited = new Map<string, Set<string>>()
  /** Phases of which the last claim found nothing that it could try for. */
  private readonly fruitless = new Set<string>()
  /** Phases of which the last claim failed. */
  private readonly failed = new Set<string>()
  /** That the claim index isn't there: over only when a look for candidates succeeds, whatever else the database does meanwhile. */
  private readonly noIndex: OutageLog
  private readonly claims: Claims
  private readonly wakeups: Wakeups
  private underWay: Promise<void> | undefined
  private stopped = false

  constructor(
    private readonly env: LifecycleEnvironment,
    private readonly options: ClaimerOptions,
  ) {
    const { model, collection, terms, clock, serverClock, random, refusing, logger } = env
    const { claimant, workSplit, outage } = options
    this.noIndex = new OutageLog(`${model.name}: claiming`, clock, logger)
    this.wakeups = new Wakeups(
      () => clock.monotonicMs(),
      (phase) => this.offer([phase]),
    )
    this.claims = new Claims({
      ...{ collection, terms, claimant, clock, serverClock, random, refusing, workSplit },
      projection: readProjection(model.settings),
      maxTimeMS: 10_000,
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
    return this.due.length > 0
  }

  /** Whether the last claim left more behind than it could take: this replica has work enough for now. */
  get hasBacklog(): boolean {
    return this.leftBehind.size > 0
  }

  /** Whether one more document of a phase could be claimed now: there is room, and no claim under way that takes it. */
  hasRoomFor(phase: string): boolean {
    return !this.underWay && this.roomFor(phase) > 0
  }

  /** The claim under way, if any. */
  get current(): Promise<void> | undefined {
    return this.underWay
  }

  /** Whether the last claim of a phase found nothing that it could try for. */
  foundNothing(phase: string): boolean {
    return this.fruitless.has(phase)
  }

  /** Phases in which something is due: claims as long as there is room, now and whenever some frees. */
  offer(phases: readonly string[]): void {
    if (this.stopped) return
    // Without the index also what isn't due any more: else nobody would see that it is back.
    const failed = this.noIndex.lasting ? this.failed : []
    for (const phase of [...phases, ...failed]) if (!this.due.includes(phase)) this.due.push(phase)
    this.claimIfRoom()
  }

  /** The same for a phase in which something comes due in so long. */
  offerIn(phase: string, ms: number): void {
    if (!this.stopped) this.wakeups.in(phase, ms)
  }

  /**
   * Documents of a phase that are said to be due: they are claimed as they are named where this can be done at once, and where
   * there is no line that they would push past; else their phase is offered.
   */
  offerNamed(phase: string, ids: readonly unknown[]): void {
    if (this.stopped) return
    const { company } = this.options
    const isFree =
      !this.underWay && !this.othersDue && !this.hasBacklog && this.roomFor(phase) >= ids.length && company.isOpen
    if (isFree) this.run(() => this.takeNamed(phase, ids))
    else {
      if (this.roomFor(phase) > 0) this.expectNamed(phase, ids)
      this.offer([phase])
    }
  }

  /** To be called whenever there may be more room than before. */
  claimIfRoom(): void {
    if (!this.underWay && this.hasRoom()) this.run(() => this.claimWhileRoom())
  }

  private run(work: () => Promise<void>): void {
    this.underWay = work().finally(() => {
      this.underWay = undefined
      this.claimIfRoom()
    })
  }

  /** No more claims; resolves when the one under way has come back. */
  async stop(): Promise<void> {
    this.stopped = true
    this.wakeups.stop()
    this.forget()
    await this.underWay
  }

  /** The next tick offers again what is due. */
  private forget(): void {
    this.due.length = 0
    this.leftBehind.clear()
    this.awaited.clear()
  }

  /** They may not be stored yet: a look that comes too early is not the last one before the tick. */
  private expectNamed(phase: string, ids: readonly unknown[]): void {
    const awaited = this.awaited.get(phase) ?? new Set()
    this.awaited.set(phase, awaited)
    for (const key of ids.map(idKey)) if (this.options.workSplit.isOwn(key)) awaited.add(key)
  }

  /** Whether a claim has not found all that was rung for before its look. */
  private isMissed(awaited: ReadonlySet<string> | undefined, { claimed }: ClaimResult): boolean {
    if (!awaited) return false
    const found = new Set(claimed.map(({ lease }) => idKey(lease.id)))
    return [...awaited].some((key) => !found.has(key))
  }

  private hasRoom(): boolean {
    return !this.stopped && this.due.some((phase) => this.roomFor(phase) > 0)
  }

  private roomFor(phase: string): number {
    const { capacities, held } = this.options
    const kind = this.env.kindOf(phase)
    return held.isFull ? 0 : capacities[kind].room(held.sizeOf(kind))
  }

  /** The first phase that is due and for which there is room, rather one that didn't fail; it is no longer known to be due. */
  private nextPhase(): string {
    const open = this.due.filter((one) => this.roomFor(one) > 0)
    const phase = open.find((one) => !this.failed.has(one)) ?? open[0]!
    this.due.splice(this.due.indexOf(phase), 1)
    return phase
  }

  private async takeNamed(phase: string, ids: readonly unknown[]): Promise<void> {
    const { company, outage, onWon } = this.options
    const admission = company.admission(this.env.model.settings)
    admission.addUnsuspected(ids.length)
    try {
      await this.env.keepTermsFresh()
      const result = await this.claims.claimNamed(phase, ids, (claimed) => onWon(phase, claimed))
      outage.succeeded()
      // Rung for while they are being stored: they may not be there yet.
      if (result.notFound > 0) this.offerIn(phase, 0)
      if (result.left > 0) this.offerIn(phase, result.againInMs)
      this.report(phase, result)
    } catch (error) {
      this.forget()
      outage.failed(error)
    } finally {
      company.over(admission)
    }
  }

  private async claimWhileRoom(): Promise<void> {
    const { company, outage, onWon } = this.options
    let allLost = 0
    while (this.hasRoom()) {
      const phase = this.nextPhase()
      const limit = this.roomFor(phase)
      const awaited = this.awaited.get(phase)
      this.awaited.delete(phase)
      const admission = company.admission(this.env.model.settings)
      try {
        await this.env.keepTermsFresh()
        const result = await this.claims.claimBatch(
          phase,
          limit,
          (claimed) => onWon(phase, claimed),
          (document) => admission.admits(document),
        )
        outage.succeeded()
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
          if (this.isMissed(awaited, result)) this.offerIn(phase, 0)
          if (result.left > 0) this.offerIn(phase, result.againInMs)
        }
        this.report(phase, result)
        this.failed.delete(phase)
      } catch (error) {
        // What is due in other phases goes first next time: it may be this one's documents.
        this.failed.add(phase)
        this.forget()
        if (error instanceof MissingIndex) this.noIndex.failed(error)
        else outage.failed(error)
      } finally {
        company.over(admission)
      }
      // Something was due that was not to be claimed beside what is held.
      if (admission.passedOver > 0) company.whenThereIsRoom(this.env.model.name, phase, () => this.offer([phase]))
    }
  }

  private report(phase: string, result: ClaimResult): void {
    const { model, observer, broken, kindOf } = this.env
    const { claimed, candidates, lost } = result
    if (claimed.length > 0) this.options.capacities[kindOf(phase)].adapt()
    broken.claimed(result)
    if (candidates > 0) observer.claimed({ lifecycle: model.name, phase, claimed: claimed.length, lost })
    // Somebody else claims here that the last look didn't know of.
    if (lost > Math.max(1, candidates / 20)) this.options.lookSoon()
  }
}

/**
 * Whether to claim again at once: the claim got what it asked for; or, of a share of what there is, so much that another
 * look for candidates is worth it.
 */
const mayHaveMore = ({ candidates, more, cut }: ClaimResult, limit: number): boolean =>
  cut || candidates >= limit || (more && candidates >= limit / 4)
