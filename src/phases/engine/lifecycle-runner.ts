import type { Collection } from 'mongodb'
import {
  type ClaimResult,
  Claims,
  EndWriter,
  idKey,
  Renewals,
  type StepEnd,
  uncountClaims,
  type Verdict,
} from '../../lock/index.js'
import { Capacity } from './capacity.js'
import { deepCopy } from './deep-copy.js'
import { type Ending, Endings, type Situation } from './execution.js'
import { type Held, waitedMs } from './held.js'
import { LeaseGuard } from './lease-guard.js'
import { OutageLog } from './outage-log.js'
import { Recorder } from './recorder.js'
import { Refresher } from './refresher.js'
import { reportEnd, reportLoss } from './reports.js'
import type { RunnerContext } from './runner-context.js'
import { StepRun } from './step-run.js'
import { Wakeups } from './wakeups.js'

/** A chain of steps looks at its document again, and yields where it must, when what it knows is older than this. */
const FRESH_MS = 1_000
/** After so many claims in a row that got nothing of what they tried for, the next tick looks again. */
const MOST_LOST_CLAIMS = 20

/**
 * Runs one lifecycle on one replica: claims what is due, runs its handlers within the concurrency, records how they ended.
 *
 * Invariants: a handler begins only under a lease with time left; a document is in the queue, in a step or being recorded,
 * never in two of them; whatever ends a turn passes through the recorder, under the turn's token.
 */
export class LifecycleRunner {
  private readonly held = new Map<string, Held>()
  private readonly queue: Held[] = []
  private readonly due: string[] = []
  private readonly claims: Claims
  private readonly recorder: Recorder
  private readonly refresher: Refresher
  private readonly endings: Endings
  private readonly guard: LeaseGuard
  private readonly capacity: Capacity
  private readonly wakeups: Wakeups
  private readonly outage: OutageLog
  private readonly writing = new AbortController()
  private running = 0
  private abandonedNow = 0
  private claiming: Promise<void> | undefined
  private stopping = false
  private idleWaiters: (() => void)[] = []

  constructor(private readonly context: RunnerContext) {
    const { model, clock, logger, serverClock, random, terms } = context
    const collection: Collection = context.collection
    const { concurrency, stepTimeoutMs, progress } = model.settings
    this.outage = new OutageLog(`${model.name}: the database`, clock, logger)
    const onRetry = (error: unknown) => this.outage.failed(error)
    this.claims = new Claims({
      collection,
      terms,
      replica: context.replica,
      clock,
      serverClock,
      random,
      skips: context.skips,
      maxTimeMS: 10_000,
      onRetry,
      isOver: () => this.stopping,
    })
    this.recorder = new Recorder(new EndWriter({ collection, terms, onRetry, signal: this.writing.signal }))
    this.refresher = new Refresher(collection)
    this.endings = new Endings(model)
    this.capacity = new Capacity(concurrency)
    this.wakeups = new Wakeups(
      () => clock.monotonicMs(),
      (phase) => this.offer([phase]),
    )
    this.guard = new LeaseGuard({
      renewals: new Renewals(context.renewalCollection, terms, clock),
      clock,
      leaseMs: () => terms().leaseMs,
      keepTermsFresh: context.keepTermsFresh,
      stepTimeoutMs,
      progress,
      serverNow: () => context.serverNow(),
      held: () => this.held.values(),
      onLost: (held) => this.lostByRenewal(held),
      onError: (error) => this.outage.failed(error),
    })
  }

  /** Documents that this replica holds. */
  get heldCount(): number {
    return this.held.size
  }
  get queuedCount(): number {
    return this.queue.length
  }
  get runningCount(): number {
    return this.running
  }
  /** Handlers that were given up and still run. */
  get abandonedCount(): number {
    return this.abandonedNow
  }

  /** Phases in which something is due: claims as long as there is room, now and whenever some frees. */
  offer(phases: readonly string[]): void {
    for (const phase of phases) if (!this.due.includes(phase)) this.due.push(phase)
    this.pump()
  }

  /** Resolves when nothing is held and nothing more is known to be due. */
  async idle(): Promise<void> {
    while (this.claiming || this.held.size > 0) {
      if (this.claiming) await this.claiming
      else await new Promise<void>((resolve) => this.idleWaiters.push(resolve))
    }
  }

  /**
   * No more claims; what was claimed and not begun is unlocked at once; running steps may finish within `graceMs`, then
   * their signals abort and they have `lastMs` more. A step that has ended is recorded, one that hasn't keeps its lease.
   */
  async stop(graceMs: number, lastMs: number, wait: (ms: number) => Promise<void>): Promise<void> {
    this.stopping = true
    this.due.length = 0
    this.wakeups.stop()
    await this.claiming
    for (const held of this.queue.splice(0)) void this.record(held, this.endings.released(held))
    await Promise.race([this.idle(), wait(graceMs)])
    for (const held of this.held.values()) held.run?.abort('shutdown')
    if (this.held.size > 0) await Promise.race([this.idle(), wait(lastMs)])
    await this.uncount(
      [...this.held.values()].filter((held) => held.run),
      wait,
      lastMs,
    )
    this.writing.abort()
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

  private claimMore(): Promise<void> {
    this.claiming ??= this.claimWhileRoom().finally(() => {
      this.claiming = undefined
      this.pump()
      this.wakeIdleWaiters()
    })
    return this.claiming
  }

  private room(): number {
    return this.stopping || this.due.length === 0 ? 0 : this.capacity.room(this.held.size)
  }

  private async claimWhileRoom(): Promise<void> {
    let allLost = 0
    for (let limit = this.room(); limit > 0; limit = this.room()) {
      const phase = this.due.shift()!
      try {
        await this.context.keepTermsFresh()
        const result = await this.claims.claimBatch(phase, limit)
        this.outage.succeeded()
        allLost = result.candidates > 0 && result.lost === result.candidates ? allLost + 1 : 0
        if (allLost > MOST_LOST_CLAIMS) this.due.length = 0
        else if (result.candidates >= limit && !this.due.includes(phase)) this.due.push(phase)
        this.took(phase, result)
      } catch (error) {
        // The next tick offers again what is due.
        this.due.length = 0
        this.outage.failed(error)
      }
    }
  }

  private took(phaseName: string, result: ClaimResult): void {
    const { model, clock, observer, broken } = this.context
    const phase = model.phases.get(phaseName)!
    const now = clock.monotonicMs()
    for (const { document, lease } of result.claimed) {
      const held: Held = { document, readAtMs: now, lease, phase, claimedAtMs: now, run: undefined }
      this.held.set(idKey(lease.id), held)
      this.queue.push(held)
    }
    broken.claimed(result)
    if (result.candidates > 0) {
      observer.claimed({ lifecycle: model.name, phase: phaseName, claimed: result.claimed.length, lost: result.lost })
    }
    if (this.held.size > 0) this.guard.watch()
    this.pump()
  }

  private pump(): void {
    while (this.running < this.context.model.settings.concurrency) {
      const held = this.queue.shift()
      if (!held) break
      this.running += 1
      void this.turn(held)
    }
    if (!this.claiming && this.room() > 0) void this.claimMore()
  }

  /** One turn of a document: its step from the lease check to the handler's end; recording goes on without the place. */
  private async turn(held: Held): Promise<void> {
    let ending: Ending | undefined
    try {
      ending = await this.step(held)
    } catch (error) {
      this.context.logger.error(`${this.context.model.name}: a turn failed: ${String(error)}`, { error })
    }
    this.running -= 1
    this.pump()
    if (ending) await this.record(held, ending)
    else this.drop(held)
  }

  private async step(held: Held): Promise<Ending | undefined> {
    if (held.lease.leftMs() === 0 || this.stopping) return this.endings.released(held)
    const situation = this.situation(held)
    const early = this.endings.withoutHandler(held, situation)
    if (early) return early
    const { model, clock, logger, handlers } = this.context
    const run = new StepRun(held, {
      lifecycle: model.name,
      progressField: model.settings.progress,
      clock,
      logger,
      serverNow: situation.now,
      checkpoint: (set) => this.checkpoint(held, set),
    })
    held.run = run
    // A copy: what a handler does to the object that it was given must not reach the next step.
    const settled = await run.settle(
      () => handlers[held.phase.name]!(deepCopy(held.document), run.context),
      () => this.endedLate(held),
    )
    held.run = undefined
    if (settled.kind === 'abandoned') this.abandonedNow += 1
    this.capacity.ran(run.ranMs())
    return this.endings.after(held, run, settled, this.situation(held))
  }

  private situation(held: Held): Situation {
    const { clock, serverNow, random } = this.context
    const longChain = clock.monotonicMs() - held.claimedAtMs > FRESH_MS
    const othersWait = this.due.length > 0 && this.held.size >= this.capacity.places
    return { now: serverNow(), random, yields: this.stopping || (longChain && othersWait) }
  }

  private async record(held: Held, ending: Ending): Promise<void> {
    const token = held.lease.token
    const end: StepEnd = { lease: held.lease, ...ending }
    let verdict: Verdict
    try {
      verdict = await this.recorder.record(end)
      this.outage.succeeded()
    } catch (error) {
      this.outage.failed(error) // stopped meanwhile: its lease passes, and the step runs again
      return this.drop(held)
    }
    if (verdict.kind === 'rejected') return this.recordRejection(held, ending, verdict.error)
    if (verdict.kind !== 'recorded') {
      reportLoss(this.context, held, token, verdict.kind === 'lost' ? 'refused' : 'movedOn')
      return this.drop(held)
    }
    reportEnd(this.context, held, ending)
    if (ending.end.kind === 'again' && ending.end.keepsLease) return this.goOn(held, ending)
    this.drop(held)
    this.expect(held, ending)
  }

  /**
   * An outcome that the server refuses for the document's own sake becomes an error; where that is refused too, poison and a
   * `progress` that has become its owner's are put aside without a word, and all else is left to expire, its claims counted.
   */
  private async recordRejection(held: Held, ending: Ending, error: Error): Promise<void> {
    const { kind } = ending.end
    const isLastResort = kind === 'error' || (kind === 'park' && !ending.set) || kind === 'putAside'
    if (!isLastResort) {
      return this.record(held, this.endings.afterRejection(held, error, ending.ms, this.situation(held)))
    }
    const { skips, broken } = this.context
    broken.refused({ id: held.lease.id, error })
    if (kind === 'park' || (kind === 'error' && isOwnersProgress(error))) {
      return this.record(held, this.endings.putAside(held, ending, error))
    }
    skips.add(held.lease.id)
    this.drop(held)
  }

  /** The next step of a chain: at the back of the line, with the document as it is now. */
  private async goOn(held: Held, ending: Ending): Promise<void> {
    const { model, clock } = this.context
    const { progress } = model.settings
    const step = ending.end.kind === 'again' ? ending.end.nextStep : null
    // In place, as handlers get copies: a new document and a new progress for each step cost 1-2 us of 21 (measured).
    const { document } = held
    Object.assign(document, ending.set, { fence: held.lease.fence, lockedBy: held.lease.token })
    document[progress] ??= {}
    const known = document[progress]
    for (const field of ending.stale) delete known[field]
    if (step !== null) known.step = step
    known.claims = 1
    known.attempts = 0
    known.at = this.context.serverNow()
    if (clock.monotonicMs() - held.readAtMs > FRESH_MS && !(await this.refresh(held))) return
    this.queue.push(held)
    this.pump()
  }

  /** Reads the document again; false: it isn't this replica's any more, or its owner's state calls for a rule. */
  private async refresh(held: Held): Promise<boolean> {
    const token = held.lease.token
    try {
      const document = await this.refresher.read(held.lease.id)
      if (document?.['lockedBy'] !== token) {
        held.lease.end()
        reportLoss(this.context, held, token, 'refused')
        this.drop(held)
        return false
      }
      held.document = document
      held.readAtMs = this.context.clock.monotonicMs()
    } catch (error) {
      this.outage.failed(error)
      return true
    }
    const { rules } = this.context.model
    const wanted = held.document['state']
    if (!rules.some((rule) => rule.when === wanted && rule.from.includes(held.phase.name))) return true
    await this.record(held, this.endings.released(held))
    return false
  }

  private async checkpoint(held: Held, set: Record<string, unknown>): Promise<boolean> {
    const ending = this.endings.checkpoint(held, set, held.run?.ranMs() ?? 0)
    const verdict = await this.recorder.record({ lease: held.lease, ...ending })
    if (verdict.kind === 'rejected') throw verdict.error
    if (verdict.kind === 'recorded') held.document = { ...held.document, ...set }
    return verdict.kind === 'recorded'
  }

  private lostByRenewal(held: Held): void {
    if (this.held.get(idKey(held.lease.id)) !== held) return
    if (held.run && !held.run.aborted) reportLoss(this.context, held, held.lease.token, 'renewal')
    held.run?.abort('lease lost')
  }

  private endedLate(held: Held): void {
    this.abandonedNow -= 1
    reportLoss(this.context, held, held.lease.token, 'abandoned')
  }

  /** What this replica knows to come due by what it has just recorded. */
  private expect(held: Held, ending: Ending): void {
    const { end } = ending
    if (this.stopping) return
    if (end.kind === 'moveTo' || end.kind === 'wait') this.context.lookSoon()
    if (end.kind === 'moveTo' && this.context.model.phases.get(end.to)?.kind === 'working') this.offer([end.to])
    else if (end.kind === 'again') this.offer([held.phase.name])
    else if (this.context.wakes()) {
      const isWait = end.kind === 'wait' || end.kind === 'unavailable'
      const pauseMs = isWait
        ? (end.forMs ??
          this.context.pauseMs(waitedMs(held, this.context.model.settings.progress, this.context.serverNow())))
        : ending.pauseMs
      if (pauseMs !== undefined) this.wakeups.in(held.phase.name, Math.max(100, pauseMs))
    }
  }

  private drop(held: Held): void {
    held.lease.end()
    const key = idKey(held.lease.id)
    if (this.held.get(key) === held) this.held.delete(key)
    if (this.held.size === 0) this.guard.stop()
    this.pump()
    this.wakeIdleWaiters()
  }

  private wakeIdleWaiters(): void {
    if (this.held.size > 0 || this.claiming) return
    for (const resolve of this.idleWaiters.splice(0)) resolve()
  }
}

/** `$mergeObjects` found no object: its owner has replaced `progress` under the handler. */
const isOwnersProgress = (error: Error): boolean => (error as { code?: unknown }).code === 40400
