import { type Claimed, type ClaimResult, Renewals, uncountClaims } from '../../lock/index.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import { Capacity } from './claim/capacity.js'
import { Claimer } from './claim/claimer.js'
import { FRESH_MS, type Held, waitedMs } from './lease/held.js'
import { HeldDocuments } from './lease/held-documents.js'
import { LeaseGuard } from './lease/lease-guard.js'
import { OutcomeRecorder } from './record/outcome-recorder.js'
import { OutageLog } from './report/outage-log.js'
import { reportLoss } from './report/reports.js'
import { type Ending, EndingRules, type Situation } from './run/ending-rules.js'
import { StepRunner } from './run/step-runner.js'
import type { RunnerContext } from './runner-context.js'
import { Wakeups } from './wake/wakeups.js'

/**
 * Runs one lifecycle on one replica: claims what is due ({@link Claimer}), runs its handlers within the concurrency
 * ({@link StepRunner}), records how they ended ({@link OutcomeRecorder}). This part joins the three, and stops them in order.
 */
export class LifecycleRunner {
  private readonly holdings: HeldDocuments
  private readonly capacity: Capacity
  private readonly threadCapacity: Capacity
  private readonly endings: EndingRules
  private readonly intake: Claimer
  private readonly turns: StepRunner
  private readonly recording: OutcomeRecorder
  private readonly guard: LeaseGuard
  private readonly wakeups: Wakeups
  private readonly outage: OutageLog
  private stopping = false

  constructor(private readonly context: RunnerContext) {
    const { model, clock, logger } = context
    this.holdings = new HeldDocuments(context.threadPhases)
    const { holdings } = this
    context.company.join(holdings, model.settings)
    const pump = () => this.pump()
    const situation = (held: Held) => this.situation(held)
    this.outage = new OutageLog(`${model.name}: the database`, clock, logger)
    this.capacity = new Capacity(model.settings.concurrency)
    this.threadCapacity = new Capacity(Math.min(model.settings.concurrency, context.threads.size))
    this.endings = new EndingRules(model, context.deadlineHold)
    const capacityOf = (phase: string) => this.capacityOf(phase)
    const shared = { context, holdings, capacityOf, endings: this.endings, outage: this.outage, situation }
    this.intake = new Claimer({
      ...shared,
      onWon: (phase, claimed) => this.won(phase, claimed),
      onClaimed: (phase, result) => this.took(phase, result),
      onLeft: (phase, ms) => this.wakeups.in(phase, ms),
      onIdle: pump,
    })
    this.recording = new OutcomeRecorder({
      ...shared,
      onQueued: pump,
      onDropped: () => this.dropped(),
      onRecorded: (held, ending) => this.expect(held, ending),
    })
    this.turns = new StepRunner({
      ...shared,
      onEnded: (held, ending) => this.ended(held, ending),
      checkpoint: (held, set) => this.recording.checkpoint(held, set),
    })
    this.wakeups = new Wakeups(
      () => clock.monotonicMs(),
      (phase) => this.offer([phase]),
    )
    this.guard = this.leaseGuard()
  }

  /** What a person has to mend before anything is claimed. */
  get problem(): string | undefined {
    return this.intake.problem
  }
  /** Documents that this replica holds. */
  get heldCount(): number {
    return this.holdings.size
  }
  get queuedCount(): number {
    return this.holdings.queued
  }
  get runningCount(): number {
    return this.turns.running
  }
  /** Handlers that were given up and still run. */
  get abandonedCount(): number {
    return this.turns.abandoned
  }

  /** Phases in which something is due: claims as long as there is room, now and whenever some frees. */
  offer(phases: readonly string[]): void {
    if (this.stopping) return
    this.intake.offer(phases)
    this.pump()
  }

  /** Documents of a phase that are said to be due. */
  offerNamed(phase: string, ids: readonly unknown[]): void {
    if (!this.stopping) this.intake.claimNamed(phase, ids)
  }

  /** Whether the last claim of a phase found nothing that it could try for. */
  foundNothing(phase: string): boolean {
    return this.intake.foundNothing(phase)
  }

  /** Resolves when nothing is held and nothing more is known to be due. */
  async idle(): Promise<void> {
    while (this.intake.current || this.holdings.size > 0) await (this.intake.current ?? this.holdings.empty())
  }

  /**
   * No more claims; what was claimed and not begun is unlocked at once; running steps may finish within `graceMs`, then
   * their signals abort and they have `lastMs` more. A step that has ended is recorded, one that hasn't keeps its lease.
   */
  async stop(graceMs: number, lastMs: number, wait: (ms: number) => Promise<void>): Promise<void> {
    this.stopping = true
    this.turns.stop()
    this.wakeups.stop()
    await this.intake.stop()
    for (const held of this.holdings.takeQueued()) void this.recording.record(held, this.endings.released(held))
    for (const { run } of this.holdings.all()) if (run && !run.hasBegun) run.abort('shutdown')
    await Promise.race([this.idle(), wait(graceMs)])
    for (const held of this.holdings.all()) held.run?.abort('shutdown')
    if (this.holdings.size > 0) await Promise.race([this.idle(), wait(lastMs)])
    await this.uncount(
      this.holdings.all().filter((held) => held.run),
      wait,
      lastMs,
    )
    this.recording.stop()
    this.guard.stop()
  }

  /** A stop in order is no sign of poison, whatever its handlers do; their leases stay. */
  private async uncount(running: readonly Held[], wait: (ms: number) => Promise<void>, mostMs: number): Promise<void> {
    const { renewalCollection, terms, logger, model } = this.context
    const leases = running.map((held) => held.lease)
    const uncounted = uncountClaims(renewalCollection, terms(), leases).catch((error: unknown) => {
      logger.warn(`${model.name}: ${leases.length} claims of steps that still run stay counted: ${String(error)}`)
    })
    await Promise.race([uncounted, wait(mostMs)])
  }

  /** Handlers in threads have places of their own: what waits for a thread takes none from the others, and is not hoarded. */
  private capacityOf(phase: string): Capacity {
    return this.context.threadPhases.has(phase) ? this.threadCapacity : this.capacity
  }

  private pump(): void {
    this.turns.begin()
    this.intake.claimIfRoom()
  }

  private won(phaseName: string, claimed: readonly Claimed[]): void {
    const { model, clock } = this.context
    const phase = model.phases.get(phaseName)!
    const now = clock.monotonicMs()
    const since = { readAtMs: now, claimedAtMs: now, queuedAtMs: now }
    for (const { document, lease, unreadable } of claimed) {
      if (unreadable) this.context.broken.unreadable(lease.id, unreadable)
      this.holdings.add({ document, lease, phase, unreadable, run: undefined, ...since })
    }
    if (this.holdings.size > 0) this.guard.watch()
    this.pump()
  }

  private took(phaseName: string, result: ClaimResult): void {
    const { model, observer, broken } = this.context
    if (result.claimed.length > 0) this.capacityOf(phaseName).adapt()
    broken.claimed(result)
    if (result.candidates > 0) {
      observer.claimed({ lifecycle: model.name, phase: phaseName, claimed: result.claimed.length, lost: result.lost })
    }
    // Somebody else claims here that the last look didn't know of.
    if (result.lost > Math.max(1, result.candidates / 20)) this.context.lookSoon()
  }

  private ended(held: Held, ending: Ending | undefined): void {
    this.pump()
    if (ending) void this.recording.record(held, ending)
    else this.recording.drop(held)
  }

  private dropped(): void {
    if (this.holdings.watched === 0) this.guard.stop()
    this.context.company.left()
    this.pump()
  }

  private situation(held: Held): Situation {
    const { clock, serverNow, random, company } = this.context
    const longChain = clock.monotonicMs() - held.claimedAtMs > FRESH_MS
    const { name } = held.phase
    const othersWait = this.intake.othersDue && this.holdings.sizeBeside(name) >= this.capacityOf(name).places
    return { now: serverNow(), random, yields: this.stopping || (longChain && (othersWait || company.isClosing)) }
  }

  /** What this replica knows to come due by what it has just recorded. */
  private expect(held: Held, ending: Ending): void {
    const { end } = ending
    const { model, wakes, lookSoon, ringOthers, pauseMs: backOff, serverNow } = this.context
    const due = duePhase(model, held, ending)
    if (due !== undefined && (this.stopping || !this.intake.hasRoomFor(due))) ringOthers(due)
    if (this.stopping) return
    // Released for a state rule: the look must come before the next claim, or the rule never finds it free.
    if (end.kind === 'released') lookSoon()
    // What came of it can wait for the tick while there is more to do than this replica can: a look costs the server 2 ms, seven a second.
    else if ((end.kind === 'moveTo' || end.kind === 'wait') && !this.intake.hasBacklog) lookSoon()
    if (due !== undefined && end.kind !== 'released') this.offer([due])
    else if (wakes()) {
      const isWait = end.kind === 'wait' || end.kind === 'unavailable'
      const pauseMs = isWait
        ? (end.forMs ?? backOff(waitedMs(held, model.settings.progress, serverNow())))
        : ending.pauseMs
      if (pauseMs !== undefined) this.wakeups.in(held.phase.name, Math.max(100, pauseMs))
    }
  }

  private leaseGuard(): LeaseGuard {
    const { model, clock, terms, renewalCollection, keepTermsFresh, serverNow, deadlineHold } = this.context
    const { stepTimeoutMs, progress } = model.settings
    return new LeaseGuard({
      renewals: new Renewals(renewalCollection, terms, clock),
      clock,
      leaseMs: () => terms().leaseMs,
      keepTermsFresh,
      stepTimeoutMs,
      progress,
      serverNow,
      deadlineHold,
      held: () => this.holdings.all(),
      isHeld: (held) => this.holdings.has(held),
      onLost: (held) => this.lostByRenewal(held),
      onError: (error) => this.outage.failed(error),
    })
  }

  private lostByRenewal(held: Held): void {
    if (!this.holdings.has(held)) return
    if (held.run && !held.run.aborted) reportLoss(this.context, held, held.lease.token, 'renewal')
    held.run?.abort('lease lost')
  }
}

/** The phase in which a document is due at once after what was recorded. */
function duePhase(model: LifecycleModel, held: Held, { end }: Ending): string | undefined {
  if (end.kind === 'moveTo') return model.phases.get(end.to)?.kind === 'working' ? end.to : undefined
  return end.kind === 'again' || end.kind === 'released' ? held.phase.name : undefined
}
