import {
  type CancelRequest,
  type Claimed,
  cancelText,
  claimOf,
  idKey,
  parentIn,
  pauseMs,
  type WorkSplit,
  waitersIn,
} from '../../../lock/index.js'
import { EndlessSteps } from '../../errors/errors.js'
import type { LifecycleModel } from '../../model/model.js'
import { OutageLog } from '../../reporting/bounded-log.js'
import type { ClaimAdmission } from '../claim/admission.js'
import { Claimer, type ClaimerOptions } from '../claim/claimer.js'
import type { CrashIsolation } from '../claim/crash-isolation.js'
import { PrefetchTarget, type PrefetchTargets } from '../concurrency/prefetch-target.js'
import { StepSemaphore } from '../concurrency/step-semaphore.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import { FRESH_MS, type Held, HeldDocuments, stepsSoFar, waitedMs } from '../lease/held.js'
import type { RunnableLifecycle } from '../options/replica-options.js'
import { OutcomeRecorder } from '../record/outcome-recorder.js'
import { LeaseGuard } from '../renew/lease-guard.js'
import { betweenStepsMs, type Ending, EndingRules, goesOn } from '../run/ending-rules.js'
import type { LoopMonitor } from '../run/loop-monitor.js'
import type { Checkpoint } from '../run/step-run.js'
import { StepRunner } from '../run/step-runner.js'

/** What a lifecycle's documents are claimed by, and its steps run. */
interface RunnerOptions {
  readonly workSplit: WorkSplit
  readonly handlers: RunnableLifecycle['handlers']
  /** The rules for documents that may be held together, in all lifecycles of a replica. */
  readonly isolation: CrashIsolation
  readonly monitor: LoopMonitor
}

/** Runs one lifecycle on one replica: claims due documents, carries each one that it has won through its steps, and stops in order. */
export class LifecycleRunner {
  /** Claims documents; due phases are offered to it. */
  readonly claimer: Claimer
  private readonly held = new HeldDocuments()
  private readonly semaphore: StepSemaphore
  private readonly prefetchTargets: PrefetchTargets
  private readonly endings: EndingRules
  private readonly steps: StepRunner
  private readonly outcomes: OutcomeRecorder
  private readonly guard: LeaseGuard
  private stopping = false
  /** The first document that took too many steps in a row, since it was last set to undefined. */
  endless: EndlessSteps | undefined

  constructor(
    private readonly env: LifecycleEnvironment,
    private readonly options: RunnerOptions,
  ) {
    const { model, clock, logger, threads, sharedSemaphore: shared } = env
    const { workSplit, handlers, isolation, monitor } = options
    const { concurrency } = model.settings
    const { held } = this
    const outage = new OutageLog(`${model.name}: the database`, clock, logger)
    // Handlers in threads have places of their own: documents that wait for a thread take none from the others, and are not hoarded.
    const inThreads = Math.min(concurrency, threads.size)
    this.semaphore = new StepSemaphore(concurrency, inThreads, shared, () => this.claimer.claimIfRoom())
    const mayRun = shared && (() => this.semaphore.mayRun(shared))
    this.prefetchTargets = {
      loop: new PrefetchTarget(concurrency, mayRun),
      thread: new PrefetchTarget(inThreads, mayRun),
    }
    this.endings = new EndingRules(env, (one) => this.yields(one))
    const { prefetchTargets, endings } = this
    const onWon: ClaimerOptions['onWon'] = (phase, claimed, admission) => this.won(phase, claimed, admission)
    this.claimer = new Claimer(env, { isolation, workSplit, held, prefetchTargets, outage, onWon })
    const isLoaded = () => this.semaphore.isWaitedFor('loop')
    this.outcomes = new OutcomeRecorder(env, endings, prefetchTargets, outage, isLoaded)
    const checkpoint: Checkpoint = (one, set, also) => this.outcomes.checkpoint(one, set, also)
    const activities = new Map(Object.keys(handlers).map((phase) => [phase, monitor.activity(model.name, phase)]))
    this.steps = new StepRunner(env, { handlers, activities, endings, prefetchTargets, checkpoint })
    this.guard = new LeaseGuard(env, held, this.semaphore, outage)
  }

  /** Its places and those that are free; the number of documents it holds; of these, those that wait for a place, and those whose steps run. */
  get counts() {
    const { held, semaphore, steps } = this
    return {
      ...semaphore.counts,
      held: held.size,
      queued: semaphore.waitingCount,
      running: semaphore.takenCount,
      /** The number of handlers that were given up and still run. */
      abandoned: steps.abandonedCount,
    }
  }

  /** The number of documents that it holds, by phase. */
  get heldIn(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>()
    for (const { phase } of this.held.all()) counts.set(phase.name, (counts.get(phase.name) ?? 0) + 1)
    return counts
  }

  /** True if it takes documents of a phase at present; not while the places for them hang. To be asked once a second. */
  takes(phase: string): boolean {
    return !this.semaphore.hang(this.env.kindOf(phase), this.env.clock.monotonicMs())
  }

  /**
   * Asks steps to stop that their owner wants to stop: their signals abort, and their documents are parked once their handlers have ended. Each is
   * asked once, however often the same request comes.
   */
  cancel(requests: readonly CancelRequest[]): void {
    for (const request of requests) {
      const held = this.held.get(idKey(request._id))
      if (!held || held.cancelled || claimOf(held.lease.token) !== request.claim) continue
      held.cancelled = request
      held.run?.abort('cancelled', cancelText(request))
      const about = {
        lifecycle: this.env.model.name,
        id: held.lease.id,
        phase: held.phase.name,
        token: held.lease.token,
      }
      this.env.logger.info(`${this.env.model.name}: a step was ${cancelText(request)}`, about)
    }
  }

  private won(phaseName: string, claimed: readonly Claimed[], admission?: ClaimAdmission): void {
    if (claimed.length === 0) return
    const { model, clock, broken, kindOf } = this.env
    const [phase, kind] = [model.phases.get(phaseName)!, kindOf(phaseName)]
    const now = clock.monotonicMs()
    const since = { readAtMs: now, claimedAtMs: now, queuedAtMs: now }
    const won = claimed.map(({ document, lease, unreadable }): Held => {
      if (unreadable) broken.unreadable(lease.id, unreadable)
      const steps = stepsSoFar(document[model.settings.progress], phase)
      const limits = admission?.takenFor(lease.key, unreadable ? undefined : document)
      // Its owner has changed the key since it was chosen: it is let go, and claimed under the new key.
      const hasNoPartitionSlot = admission !== undefined && !limits
      return {
        document,
        lease,
        phase,
        kind,
        unreadable,
        run: undefined,
        limits,
        hasNoPartitionSlot,
        ...since,
        ...steps,
      }
    })
    for (const held of won) this.held.add(held)
    this.guard.watch()
    for (const held of won) void this.carry(held)
  }

  /**
   * Carries one document from its claim to the end of its lease: step after step, each recorded before the next. Never rejects: a failure of one
   * document costs its own lease, and no other document anything.
   *
   * Invariants: a document waits for a place, is in its step or is being recorded, never two of these. It waits for 1.5 s at most (and a round of the
   * guard), then other replicas may have it. A handler begins only under leases with time left, its slots' too, and not once the replica stops or it
   * is paused. Whatever happens, its place is given back and it is let go.
   */
  private async carry(held: Held): Promise<void> {
    try {
      let recorded: Ending | undefined
      do {
        // Each step goes to the back of the queue, so that chains of steps take turns with everything else.
        const turn = this.semaphore.acquire(held.kind, held.queuedAtMs)
        const hasPlace = turn === undefined || (await turn)
        const isSafe = held.lease.leftMs() > 0 && !(held.limits && this.env.limitLeases.areInDanger(held))
        const mayBegin = hasPlace && isSafe && !this.stopping && !held.hasNoPartitionSlot && !this.isPaused(held)
        let ending: Ending
        try {
          ending = mayBegin ? await this.steps.run(held) : this.endings.released(held)
        } finally {
          if (hasPlace)
            this.semaphore.release(held.kind) // the next one begins while this one is recorded
          else this.prefetchTargets[held.kind].tooMany()
        }
        this.claimer.claimIfRoom()
        recorded = await this.outcomes.record(held, ending)
      } while (recorded && goesOn(recorded))
      this.letGo(held)
      if (recorded) this.notifyRelated(held, recorded)
      if (recorded) this.expect(held, recorded)
    } catch (error) {
      this.letGo(held)
      const message = `${this.env.model.name}: a step or its record failed: ${String(error)}`
      this.env.lines.error({ kind: 'a step broke', phase: held.phase.name }, message, { id: held.lease.id, error })
    }
  }

  /** Drops it from the held documents, and lets in those that it kept from being held. Calling it twice does no harm. */
  private letGo(held: Held): void {
    this.held.drop(held)
    if (held.limits) this.env.limitLeases.release(held, 1)
    held.limits = undefined
    if (this.held.watched === 0) this.guard.stop()
    this.options.isolation.released()
    this.claimer.claimIfRoom()
  }

  /** Notifies its parent, or its waiters, which may have waited for just this. A hint: they look for themselves. */
  private notifyRelated({ document, lease }: Held, { end }: Ending): void {
    const { model, related } = this.env
    const progress: unknown = document[model.settings.progress]
    const parent = model.settings.child ? parentIn(progress) : undefined
    if (end.kind === 'moveTo') {
      for (const waiter of waitersIn(progress)) related.reached(model, lease.id, end.to, waiter)
      if (parent && model.phases.get(end.to)?.kind !== 'working')
        related.ended(model, parent, model.phases.get(end.to)?.failed ? 'failed' : 'succeeded')
    } else if (parent && (end.kind === 'park' || end.kind === 'quarantine')) related.ended(model, parent, 'parked')
  }

  /** Prepares for the documents that come due because of the recorded ending. */
  private expect(held: Held, ending: Ending): void {
    const { end } = ending
    const { model, serverNow, terms, wakes, lookSoon, ringOthers } = this.env
    const next = duePhase(model, held, ending)
    const due = next !== undefined && this.env.paused().has(next) ? undefined : next
    const betweenSteps = betweenStepsMs(ending)
    if (betweenSteps !== undefined) {
      const phase = held.phase.name
      const { id } = held.lease
      const steps = ending.steps ?? 0
      const endless = new EndlessSteps(model.name, id, phase, steps)
      this.endless ??= endless
      const message = `${endless.message}; from now on it pauses between its steps`
      const about = { lifecycle: model.name, id, phase, steps }
      if (steps % model.settings.backOff.afterSteps === 0)
        this.env.lines.warn({ kind: 'many steps in a row', phase }, message, about)
    }
    if (due !== undefined && (this.stopping || !this.claimer.hasRoomFor(due))) {
      ringOthers({ lifecycles: [model.name], phases: [due] })
    }
    if (ending.appliesPendingInsert && this.stopping) ringOthers({ lifecycles: [model.name] })
    if (this.stopping) return
    if (ending.appliesPendingInsert) lookSoon()
    // Released for a state rule: the look must come before the next claim, or the rule never finds it free.
    if (end.kind === 'released') lookSoon()
    // Its consequences can wait for the tick while this replica has a backlog: a look costs the server 2 ms, seven times a second.
    else if ((end.kind === 'moveTo' || end.kind === 'wait') && !this.claimer.hasBacklog) lookSoon()
    if (due !== undefined && end.kind !== 'released') this.claimer.offer([due])
    else if (wakes()) {
      const { progress } = model.settings
      const isWait = end.kind === 'wait' || end.kind === 'unavailable'
      const sleepsMs = isWait
        ? (end.forMs ?? pauseMs(waitedMs(held, progress, serverNow()), terms()))
        : (betweenSteps ?? ending.pauseMs)
      const phase = end.kind === 'moveTo' ? end.to : held.phase.name
      if (sleepsMs !== undefined) this.claimer.offerIn(phase, Math.max(100, sleepsMs))
    }
  }

  /** True if people have paused it, alone or with its phase. */
  private isPaused({ phase, lease }: Held): boolean {
    return this.env.paused().hasDocument(phase.name, lease.id)
  }

  /**
   * True if a chain of steps makes way: it has gone on for long while others are due, it is paused, each of its steps counts for a rate, or the
   * replica stops.
   */
  private yields(held: Held): boolean {
    const { claimedAtMs, kind } = held
    if (this.stopping || this.isPaused(held) || this.env.limitLeases.isRated(held)) return true
    if (this.env.clock.monotonicMs() - claimedAtMs <= FRESH_MS) return false
    const othersWait = this.claimer.othersDue && this.held.sizeOf(kind) >= this.prefetchTargets[kind].target
    return othersWait || this.options.isolation.closedMs > 0
  }

  /** Resolves when nothing is held and nothing more is known to be due. */
  async idle(): Promise<void> {
    while (this.claimer.current || this.held.size > 0) await (this.claimer.current ?? this.held.empty())
  }

  /**
   * Stops claiming. Documents that were claimed and haven't begun are unlocked immediately; running steps may finish within `graceMs`, then their
   * signals abort and they have `lastMs` more. A step that has ended is recorded, one that hasn't keeps its lease.
   */
  async stop(graceMs: number, lastMs: number, wait: (ms: number) => Promise<void>): Promise<void> {
    this.stopping = true
    await this.claimer.stop()
    this.semaphore.open() // no handler begins any more
    for (const { run } of this.held.all()) if (run && !run.hasBegun) run.abort('shutdown')
    await Promise.race([this.idle(), wait(graceMs)])
    for (const held of this.held.all()) held.run?.abort('shutdown')
    if (this.held.size > 0) await Promise.race([this.idle(), wait(lastMs)])
    // An orderly stop is no sign of poison, even if handlers ignore it.
    const running = this.held.all().filter(({ run }) => run)
    await Promise.race([this.outcomes.uncount(running, 'steps that still run'), wait(lastMs)])
    this.outcomes.stop()
    this.guard.stop()
  }
}

/** The phase that a document is due in immediately after the recorded ending. */
function duePhase(model: LifecycleModel, held: Held, ending: Ending): string | undefined {
  const { end } = ending
  if (betweenStepsMs(ending) !== undefined) return undefined
  if (end.kind === 'moveTo') return model.phases.get(end.to)?.kind === 'working' ? end.to : undefined
  return end.kind === 'again' || end.kind === 'released' ? held.phase.name : undefined
}
