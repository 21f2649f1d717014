import { hostname } from 'node:os'
import { appVersion } from '../../config/index.js'
import type { Ring } from '../../doorbell/index.js'
import { Claimant, Looks, ServerClock, type Terms } from '../../lock/index.js'
import { replicaIdentity } from '../../options/index.js'
import { sleep, systemClock } from '../../time/index.js'
import { BackgroundTasks } from '../background/background.js'
import { declaredLimits } from '../definition/limits.js'
import { ReplicaStopped } from '../errors/errors.js'
import { claimedPhases, type LifecycleModel } from '../model/model.js'
import { BoundedLog, OutageLog } from '../reporting/bounded-log.js'
import { sturdy, warningsLogger } from '../reporting/logger.js'
import { observers } from '../reporting/observer.js'
import { ThreadPool } from '../threads/index.js'
import { CrashIsolation } from './claim/crash-isolation.js'
import { SharedSemaphore } from './concurrency/step-semaphore.js'
import type { Environment } from './context/environment.js'
import { type RunningLifecycle, runningLifecycle } from './lifecycle/running-lifecycle.js'
import type { TickCounts } from './lifecycle/tick-duties.js'
import { LimitLeases } from './limits/limit-leases.js'
import { checkOptions, type ReplicaOptions, type ReplicaStatus } from './options/replica-options.js'
import { FlowCounter } from './registry/flow-counter.js'
import { LifecycleRegistry } from './registry/lifecycle-registry.js'
import { Beats, LiveReplicas } from './registry/live-replicas.js'
import { requireDisjoint } from './registry/overlaps.js'
import { figuresOf, statusOf } from './replica-status.js'
import { LoopMonitor } from './run/loop-monitor.js'
import { checkAtStart } from './start/start-checks.js'
import { ClockWatch } from './tick/clock-watch.js'
import { DoorbellLink } from './tick/doorbell-link.js'
import { Duties } from './tick/duties.js'
import { Tick } from './tick/tick.js'
import { ParentNotifier } from './wake/parent-notifier.js'

const LAST_CHANCE_MS = 1_000
/** The time until an early tick after a document has begun to wait or has moved: it may wait for new work, which needn't wait for the next tick. */
const LOOK_SOON_MS = 150
/** The time until the tick after one that failed: so that work goes on soon after the database is back. */
const RETRY_MS = 300
const MAX_ROUNDS = 1_000
/** The number of rounds of `runOnce()`, a tick apart, after which failing claims are an error: claims must have failed in each. */
const MOST_FAILING_ROUNDS = 5

/**
 * One running processor of any number of lifecycles over one database. N identical ones share the work; none leads.
 *
 * `start()` ticks by itself, once a second unless `tickEvery` says otherwise. `runOnce()` does one tick and everything that follows from it, and
 * returns: tests drive this one. `stop()` follows the shutdown rules of docs/lock-protocol.md.
 */
export class Replica {
  /** Its name, made unique for this start: `lockedBy` of each document that it holds begins with it. */
  readonly identity: string
  private readonly env: Environment
  private readonly boundedLog: BoundedLog
  private readonly beats: Beats
  private readonly duties: Duties
  private readonly looks: Looks
  private readonly running: readonly RunningLifecycle[]
  private readonly everyTick: Tick
  private readonly outage: OutageLog
  private readonly doorbell: DoorbellLink
  private readonly monitor: LoopMonitor
  private readonly backgroundTasks: BackgroundTasks
  private readonly isolation: CrashIsolation
  private readonly parentNotifier: ParentNotifier
  private prepared: Promise<void> | undefined
  private ticker: NodeJS.Timeout | undefined
  private ticking: Promise<TickCounts> | undefined
  private waking = false
  private lastTickMs: number | undefined
  private stopping: Promise<void> | undefined
  private early: NodeJS.Timeout | undefined

  /**
   * @throws OverlappingLifecycles when two of its lifecycles would claim the same documents
   * @throws InvalidReplicaOptions
   */
  constructor(given: ReplicaOptions) {
    const options = checkOptions(given)
    const { db, renewalDb = db, clockHold: holdMs, blockedAfter: limitMs, beatEvery: everyMs } = options
    const { clock = systemClock, random = Math.random, threads: size, threadMemoryMb: memoryMb } = options
    const logger = sturdy(options.logger ?? warningsLogger)
    this.boundedLog = new BoundedLog(logger, clock)
    const observer = observers([options.observer ?? []].flat(), this.boundedLog)
    const identity = replicaIdentity(options.name ?? `${hostname()}-${process.pid}`, random)
    this.identity = identity
    const models = options.lifecycles.map((lifecycle) => lifecycle.model)
    requireDisjoint(models)
    const phases = new Map(models.map((model) => [model.name, claimedPhases(model)]))
    const takes = (name: string, phase: string) => this.partsOf(name).runner.takes(phase)
    const liveReplicas = new LiveReplicas(db, identity, phases, takes, clock, () => this.waking)
    const lifecycles = () => this.running
    const clockWatch = new ClockWatch({ db, clock, holdMs, logger, observer, liveReplicas, lifecycles })
    const serverClock = new ServerClock(clock, clockWatch.steps)
    const serverNow = () => serverClock.now() ?? clock.now()
    const flows = new FlowCounter(serverNow)
    const registry = new LifecycleRegistry(db, renewalDb, models, logger, clock, serverClock)
    this.looks = new Looks(db, clock, serverClock)
    this.outage = new OutageLog('the tick', clock, logger)
    const threads = options.threadPool ?? new ThreadPool({ size, memoryMb, logger })
    if (models.length > 0) threads.join()
    const monitor = new LoopMonitor({ limitMs, clock, logger, observer })
    this.monitor = monitor
    this.isolation = new CrashIsolation(clock)
    const leaseMs = () => Math.max(...models.map((model) => registry.lockTimeout(model).leaseMs))
    const limiting = { leaseMs, declared: declaredLimits(models) }
    const limitLeases = new LimitLeases({ db: renewalDb, identity, clock, serverClock, logger, ...limiting })
    const ringOthers = (ring: Ring) => this.doorbell.ring(ring)
    const lookSoon = (ms?: number) => this.lookSoon(ms)
    const parents = { db, clock, logger, serverNow, running: lifecycles, ringOthers, lookSoon: () => lookSoon(0) }
    this.parentNotifier = new ParentNotifier(parents)
    this.env = {
      ...{
        options,
        identity,
        claimant: new Claimant(identity),
        clock,
        serverClock,
        serverNow,
        random,
        logger,
        observer,
      },
      ...{ registry, liveReplicas, limitLeases, flows, related: this.parentNotifier, threads, lookSoon, ringOthers },
      sharedSemaphore: options.sharedSemaphore ?? SharedSemaphore.of(options.concurrency),
      wakes: () => this.waking,
    }
    const { env, isolation } = this
    const apart = { isolation, monitor }
    this.running = options.lifecycles.map((lifecycle) => runningLifecycle(env, lifecycle, apart))
    this.backgroundTasks = new BackgroundTasks(() => this.running.flatMap((one) => one.alongside()), logger)
    const look = async () => {
      await this.ticking
      await this.tick()
    }
    this.doorbell = new DoorbellLink(env, this.running, look)
    const figures = () => {
      const times = { loopMs: monitor.takeLongestMs(), tickMs: this.lastTickMs }
      return { ...figuresOf(this.running, limitLeases), ...times }
    }
    const version = appVersion(options.appVersion)
    this.beats = new Beats({ db, identity, clock, serverNow, logger, everyMs, flows, appVersion: version, figures })
    const watched = ({ model }: RunningLifecycle) => registry.watched(model)
    this.duties = new Duties({ ...env, db, sweepEveryMs: options.sweepEvery, running: lifecycles, watched })
    this.everyTick = new Tick(this.running, this.looks, registry, liveReplicas, clockWatch, clock)
  }

  /**
   * Checks the server, creates the indexes (or looks for them), registers the lifecycles. `start` and the first tick do it by themselves.
   * @throws ServerTooOld, DriverMismatch, MissingRights, ShardedCollections, NotMongoDB, MissingIndexes, OverlappingLifecycles, BadQueryPlan
   * @throws InvalidLifecycle for a thread's module
   */
  prepare(): Promise<void> {
    const { env, looks } = this
    const requests = () => this.everyTick.requests()
    const terms = (model: LifecycleModel) => this.terms(model)
    this.prepared ??= checkAtStart(env, { looks, requests, terms }).catch((error) => {
      this.prepared = undefined
      throw error
    })
    return this.prepared
  }

  /**
   * Runs one look, and the rules, removals and claims that it calls for. Steps go on after it has returned. Never overlaps itself: a call during a
   * tick gets that tick's counts. Never throws because the database is down: that is logged with a bound.
   */
  async tick(): Promise<TickCounts> {
    if (this.stopping) return { ruled: 0, removed: 0, due: 0 }
    this.ticking ??= this.tickNow().finally(() => {
      this.ticking = undefined
    })
    return this.ticking
  }

  /**
   * Runs one tick and all that follows from it, until nothing is due and nothing is held. For tests and one-off runs.
   * @throws EndlessSteps when a document takes too many steps in a row; the error of claims, once they have failed for some seconds; the errors of
   * `prepare`
   */
  async runOnce(): Promise<TickCounts> {
    await this.prepare()
    const total: TickCounts = { ruled: 0, removed: 0, due: 0 }
    for (const { runner } of this.running) runner.endless = undefined
    let failingRounds = 0
    try {
      for (let round = 0; round < MAX_ROUNDS; round += 1) {
        this.env.limitLeases.refresh()
        const before = this.running.map(({ runner }) => runner.claimer.failures.count)
        const { ruled, removed, due } = await this.everyTick.run()
        await this.idle()
        for (const { runner } of this.running) if (runner.endless) throw runner.endless
        total.ruled += ruled
        total.removed += removed
        total.due += due
        if (due + ruled + removed === 0) return total
        const failing = this.running.filter(({ runner }, i) => runner.claimer.failures.count > before[i]!)
        failingRounds = failing.length > 0 ? failingRounds + 1 : 0
        if (failingRounds >= MOST_FAILING_ROUNDS) throw claimsFail(failing)
        if (failingRounds > 0) await sleep(this.env.options.tickEvery)
        if (this.isolation.againInMs > 0) await sleep(this.isolation.againInMs)
      }
    } finally {
      this.reportSuppressed()
    }
    throw new Error(`something is still due after ${MAX_ROUNDS} rounds: does a phase move back and forth forever?`)
  }

  /**
   * Ticks each `tickEvery` at an offset of its own, until `stop()`.
   * @throws ReplicaStopped after that; the errors of `prepare`
   */
  async start(): Promise<void> {
    if (this.stopping) throw new ReplicaStopped(this.identity)
    await this.prepare()
    this.wakeBetweenTicks()
    if (this.stopping) return
    await this.env.liveReplicas.say().catch((error) => this.outage.failed(error))
    if (this.stopping) return
    this.beats.ifDue()
    if (!this.ticker) this.keepTicking(Math.floor(this.env.random() * this.env.options.tickEvery))
  }

  /**
   * Also resumes by local timers the documents that it knows to come due, and listens to the doorbell: for callers that call `tick()` by a clock of
   * their own. Call it when `prepare()` has resolved.
   */
  wakeBetweenTicks(): void {
    if (this.stopping) return
    this.waking = true
    this.doorbell.listen()
    this.monitor.start()
    this.backgroundTasks.start()
  }

  /** Resolves when this replica holds nothing. */
  async idle(): Promise<void> {
    // The documents that the end of one has woken are held next.
    let before: number
    do {
      before = this.parentNotifier.woken
      await Promise.all(this.running.map(({ runner }) => runner.idle()))
      await this.parentNotifier.settled()
      await Promise.all(this.running.flatMap(({ deliverer, events }) => [deliverer?.settled(), events?.settled()]))
    } while (this.parentNotifier.woken !== before)
  }

  /** Stops claiming; see docs/lock-protocol.md, shutdown. Resolves when none of its work runs any more. */
  stop(): Promise<void> {
    this.stopping ??= this.stopNow()
    return this.stopping
  }

  /** Returns its figures, and why it isn't ready, if it isn't; for health checks and metrics. */
  status(): ReplicaStatus {
    const { env, running, outage } = this
    const states = [...(this.stopping ? ['stopping'] : []), ...(this.prepared ? [] : ['not started'])]
    const [doorbell, problems] = [this.doorbell.status, [...new Set(this.backgroundTasks.problems)]]
    return statusOf({ ...env, running, outage, doorbell, problems }, states)
  }

  /** The terms in force for a lifecycle. @internal */
  terms(model: LifecycleModel): Terms {
    return this.partsOf(model.name).terms()
  }

  private partsOf(lifecycle: string): RunningLifecycle {
    return this.running.find(({ model }) => model.name === lifecycle)!
  }

  private async tickNow(): Promise<TickCounts> {
    this.boundedLog.flush()
    const { clock, observer } = this.env
    const startedMs = clock.monotonicMs()
    const seconds = () => (clock.monotonicMs() - startedMs) / 1_000
    try {
      await this.prepare()
      const counts = await this.everyTick.run()
      this.outage.succeeded()
      observer.ticked({ seconds: seconds() })
      return counts
    } catch (error) {
      this.outage.failed(error)
      observer.ticked({ seconds: seconds(), error })
      this.lookSoon(RETRY_MS)
      return { ruled: 0, removed: 0, due: 0 }
    } finally {
      this.lastTickMs = Math.round(seconds() * 1_000)
      if (this.waking) for (const one of [this.beats, this.duties]) one.ifDue()
    }
  }

  /** Ticks at an offset within each `tickEvery`, so that replicas spread their looks. A tick is skipped while the one before still runs. */
  private keepTicking(offsetMs: number): void {
    if (this.stopping) return
    const everyMs = this.env.options.tickEvery
    const waitMs = everyMs - ((this.env.clock.now().getTime() - offsetMs) % everyMs)
    this.ticker = setTimeout(() => void this.tick().finally(() => this.keepTicking(offsetMs)), waitMs)
  }

  /** Starts an early tick, one for all requests until then. */
  private lookSoon(ms = LOOK_SOON_MS): void {
    if (!this.waking || this.early || this.stopping) return
    this.early = setTimeout(() => {
      this.early = undefined
      void this.tick()
    }, ms).unref()
  }

  /** Logs all lines that were counted but not yet reported, where the next tick may not come. */
  private reportSuppressed(): void {
    for (const lines of [this.boundedLog, ...this.running.map((part) => part.lines)]) lines.tellAll()
  }

  private async stopNow(): Promise<void> {
    clearTimeout(this.ticker)
    this.monitor.stop()
    clearTimeout(this.early)
    const { grace: graceMs } = this.env.options
    const over = new AbortController()
    const wait = (ms: number) => sleep(ms, { signal: over.signal })
    const left = this.env.liveReplicas.leave().catch(() => undefined)
    const beside = this.backgroundTasks.stop(graceMs + LAST_CHANCE_MS)
    // The claims of a tick under way come first: each runner waits for its own, then gives back documents that have not begun.
    const told = Promise.all(this.running.map(({ deliverer }) => deliverer?.stop(graceMs, LAST_CHANCE_MS, wait)))
    await Promise.all(this.running.map(({ runner }) => runner.stop(graceMs, LAST_CHANCE_MS, wait)))
    await told
    await Promise.all(this.running.map(({ events }) => events?.stop(wait, LAST_CHANCE_MS)))
    await Promise.race([
      Promise.all([left, this.beats.end(), this.duties.stop(), this.env.limitLeases.stop()]),
      wait(LAST_CHANCE_MS),
    ])
    over.abort()
    await Promise.all([beside, this.parentNotifier.stop(), ...this.running.map(({ waker }) => waker.stop())])
    await Promise.all([this.ticking, this.doorbell.stop()])
    if (this.env.options.lifecycles.length > 0) await this.env.threads.leave()
    this.reportSuppressed()
  }
}

function claimsFail(failing: readonly RunningLifecycle[]): Error {
  const causes = failing.map(({ model, runner }) => `${model.name}: ${String(runner.claimer.failures.last)}`)
  const cause = failing[0]!.runner.claimer.failures.last
  const message = `something is due, and claims of it have failed for ${MOST_FAILING_ROUNDS} s: ${causes.join('; ')}`
  return new Error(message, { cause })
}
