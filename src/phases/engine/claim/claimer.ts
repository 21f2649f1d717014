import { type Claimed, type ClaimResult, Claims, idKey, MissingIndex } from '../../../lock/index.js'
import type { HeldDocuments } from '../lease/held-documents.js'
import { OutageLog } from '../report/outage-log.js'
import type { RunnerContext } from '../runner-context.js'
import type { Capacity } from './capacity.js'
import { readProjection } from './read-projection.js'

/** After so many claims in a row that got nothing of what they tried for, the next tick looks again. */
const MOST_LOST_CLAIMS = 20

export interface ClaimerOptions {
  readonly context: RunnerContext
  readonly holdings: HeldDocuments
  readonly capacityOf: (phase: string) => Capacity
  readonly outage: OutageLog
  /** Told of documents as soon as they have been won, before the claim that they belong to is over. */
  readonly onWon: (phase: string, claimed: readonly Claimed[]) => void
  /** Told of each claim that is over; what it has won it was told of before. */
  readonly onClaimed: (phase: string, result: ClaimResult) => void
  /** Due documents were left to other replicas; after so many milliseconds those that still lie there are anybody's. */
  readonly onLeft: (phase: string, ms: number) => void
  /** Nothing is being claimed any more: there may be room by now. */
  readonly onIdle: () => void
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
  private underWay: Promise<void> | undefined
  private stopped = false

  constructor(private readonly options: ClaimerOptions) {
    const { context, outage } = options
    this.noIndex = new OutageLog(`${context.model.name}: claiming`, context.clock, context.logger)
    this.claims = new Claims({
      collection: context.collection,
      terms: context.terms,
      replica: context.replica,
      clock: context.clock,
      serverClock: context.serverClock,
      random: context.random,
      refusing: context.skips,
      projection: readProjection(context.model.settings),
      maxTimeMS: 10_000,
      onRetry: (error) => outage.failed(error),
      isOver: () => this.stopped,
      workSplit: context.share,
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

  /** Phases in which something is due; `claimIfRoom` does the rest. */
  offer(phases: readonly string[]): void {
    // Without the index also what isn't due any more: else nobody would see that it is back.
    const failed = this.noIndex.lasting ? this.failed : []
    for (const phase of [...phases, ...failed]) if (!this.due.includes(phase)) this.due.push(phase)
  }

  /**
   * Documents of a phase that are said to be due: they are claimed as they are named where this can be done at once, and where
   * there is no line that they would push past; else their phase is offered.
   */
  claimNamed(phase: string, ids: readonly unknown[]): void {
    if (this.stopped) return
    const { company } = this.options.context
    const isFree =
      !this.underWay && !this.othersDue && !this.hasBacklog && this.roomFor(phase) >= ids.length && company.isOpen
    if (isFree) this.run(() => this.takeNamed(phase, ids))
    else {
      if (this.roomFor(phase) > 0) this.expectNamed(phase, ids)
      this.offer([phase])
      this.claimIfRoom()
    }
  }

  claimIfRoom(): void {
    if (!this.underWay && this.hasRoom()) this.run(() => this.claimWhileRoom())
  }

  private run(work: () => Promise<void>): void {
    this.underWay = work().finally(() => {
      this.underWay = undefined
      this.options.onIdle()
    })
  }

  /** No more claims; resolves when the one under way has come back. */
  async stop(): Promise<void> {
    this.stopped = true
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
    for (const key of ids.map(idKey)) if (this.options.context.share.isOwn(key)) awaited.add(key)
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
    const { capacityOf, holdings } = this.options
    return holdings.isFull ? 0 : capacityOf(phase).room(holdings.sizeBeside(phase))
  }

  /** The first phase that is due and for which there is room, rather one that didn't fail; it is no longer known to be due. */
  private nextPhase(): string {
    const open = this.due.filter((one) => this.roomFor(one) > 0)
    const phase = open.find((one) => !this.failed.has(one)) ?? open[0]!
    this.due.splice(this.due.indexOf(phase), 1)
    return phase
  }

  private async takeNamed(phase: string, ids: readonly unknown[]): Promise<void> {
    const { context, outage, onWon, onClaimed, onLeft } = this.options
    const admission = context.company.admission(context.model.settings)
    admission.addUnsuspected(ids.length)
    try {
      await context.keepTermsFresh()
      const result = await this.claims.claimNamed(phase, ids, (claimed) => onWon(phase, claimed))
      outage.succeeded()
      // Rung for while they are being stored: they may not be there yet.
      if (result.notFound > 0) onLeft(phase, 0)
      if (result.left > 0) onLeft(phase, result.againInMs)
      onClaimed(phase, result)
    } catch (error) {
      this.forget()
      outage.failed(error)
    } finally {
      context.company.over(admission)
    }
  }

  private async claimWhileRoom(): Promise<void> {
    const { context, outage, onWon, onClaimed, onLeft } = this.options
    let allLost = 0
    while (this.hasRoom()) {
      const phase = this.nextPhase()
      const limit = this.roomFor(phase)
      const awaited = this.awaited.get(phase)
      this.awaited.delete(phase)
      const admission = context.company.admission(context.model.settings)
      try {
        await context.keepTermsFresh()
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
          if (this.isMissed(awaited, result)) onLeft(phase, 0)
          if (result.left > 0) onLeft(phase, result.againInMs)
        }
        onClaimed(phase, result)
        this.failed.delete(phase)
      } catch (error) {
        // What is due in other phases goes first next time: it may be this one's documents.
        this.failed.add(phase)
        this.forget()
        if (error instanceof MissingIndex) this.noIndex.failed(error)
        else outage.failed(error)
      } finally {
        context.company.over(admission)
      }
      if (admission.passedOver > 0) this.offerAgain(phase)
    }
  }

  /** Something was due that was not to be claimed beside what is held. */
  private offerAgain(phase: string): void {
    const { company, model } = this.options.context
    company.whenThereIsRoom(model.name, phase, () => {
      if (this.stopped) return
      this.offer([phase])
      this.claimIfRoom()
    })
  }
}

/**
 * Whether to claim again at once: the claim got what it asked for; or, of a share of what there is, so much that another
 * look for candidates is worth it.
 */
const mayHaveMore = ({ candidates, more, cut }: ClaimResult, limit: number): boolean =>
  cut || candidates >= limit || (more && candidates >= limit / 4)
