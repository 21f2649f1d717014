import { hostname } from 'node:os'
import type { Db, Document } from 'mongodb'
import { protocolCollection, requireServerVersion } from '../../database/index.js'
import {
  BadQueryPlan,
  checkPlans,
  describeFinding,
  ensureLockIndexes,
  type LookRequest,
  type LookResult,
  Looks,
  type Protocol,
  pauseMs,
  replicaIdentity,
  SAFE_PROTOCOL,
  ServerClock,
  SkipList,
  type Terms,
  termsOf,
} from '../../lock/index.js'
import { type Clock, sleep, systemClock } from '../../time/index.js'
import type { AnyHandler } from '../definition/bound-lifecycle.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import { type Logger, silentLogger } from '../logger.js'
import { BrokenReports } from './broken-reports.js'
import { Housekeeper, type TickCounts } from './housekeeper.js'
import { LifecycleRunner } from './lifecycle-runner.js'
import { lookRequestOf } from './look-request.js'
import type { ReplicaObserver } from './observer.js'
import { observers } from './observers.js'
import { OutageLog } from './outage-log.js'
import { requireDisjoint } from './overlaps.js'
import { LifecycleRegistry } from './registry.js'
import { requireIndexes } from './required-indexes.js'
import { Ticker } from './ticker.js'
import { UnknownPhases } from './unknown-phases.js'

const TICK_MS = 1_000
const LAST_CHANCE_MS = 1_000
/** After a document has begun to wait or has moved, what it waits for may be new work: no need to leave that to the next tick. */
const LOOK_SOON_MS = 150
/** After a tick that failed: work is to go on soon after the database is back. */
const RETRY_MS = 300
const UNKNOWN_PHASES_EVERY_MS = 60_000
const MAX_ROUNDS = 1_000
const TOO_MANY_ABANDONED = 5

/** A lifecycle with its handlers, as `lifecycle.handle({...})` returns it. */
export interface RunnableLifecycle {
  readonly model: LifecycleModel
  readonly handlers: Readonly<Record<string, AnyHandler>>
  attach(db: Db): unknown
}

export interface ReplicaOptions {
  readonly db: Db
  readonly lifecycles: readonly RunnableLifecycle[]
  /** Who it is in `lockedBy`: POD_NAME in Kubernetes. Default: the host's name and the process id. */
  readonly name?: string | undefined
  /** The same database over a connection of its own, for renewals. Default: `db`. */
  readonly renewalDb?: Db | undefined
  /**
   * The same database over the caller's own client: what the lifecycles' owner methods use, so that they can take part in the
   * caller's transactions. Default: `db`.
   */
  readonly ownerDb?: Db | undefined
  /**
   * Whether a start creates what is missing (two indexes for each collection, the collection `phaselock.lifecycles`), or only
   * looks and fails with MissingIndexes, for a user without DDL rights. Default 'create'.
   */
  readonly indexes?: 'create' | 'check' | undefined
  /** How long running steps may go on after `stop()`. Default 10,000 ms. */
  readonly graceMs?: number | undefined
  readonly logger?: Logger | undefined
  readonly observer?: ReplicaObserver | undefined
  readonly clock?: Clock | undefined
  readonly random?: (() => number) | undefined
  /**
   * What a start does when a claim or a look is not a bounded scan of its index: say so in the log, or fail with
   * BadQueryPlan. Default 'warn'.
   */
  readonly onBadPlan?: 'warn' | 'refuse' | undefined
  /** @internal */
  readonly protocol?: Protocol | undefined
}

export type { TickCounts }

export interface ReplicaStatus {
  readonly identity: string
  /** Empty: ready. Else why it isn't. */
  readonly notReady: readonly string[]
  readonly held: number
  readonly queued: number
  readonly running: number
  readonly abandoned: number
  /** Documents that refuse writes, left alone for a while. */
  readonly skipped: number
}

/**
 * One running processor of any number of lifecycles over one database. N identical ones share the work; none leads.
 *
 * `start()` ticks by itself once a second; `runOnce()` does one tick and everything that follows from it, and returns: what
 * tests drive. `stop()` follows the shutdown rules of docs/lock-protocol.md.
 */
export class Replica {
  readonly identity: string
  private readonly clock: Clock
  private readonly logger: Logger
  private readonly observer: Required<ReplicaObserver>
  private readonly random: () => number
  private readonly serverClock: ServerClock
  private readonly registry: LifecycleRegistry
  private readonly looks: Looks
  private readonly runners = new Map<string, LifecycleRunner>()
  private readonly housekeepers = new Map<string, Housekeeper>()
  private readonly skips = new Map<string, SkipList>()
  private readonly broken = new Map<string, BrokenReports>()
  private readonly unknownPhases: UnknownPhases[]
  private readonly outage: OutageLog
  private prepared: Promise<void> | undefined
  private ticker: Ticker | undefined
  private ticking: Promise<TickCounts> | undefined
  private unknownPhasesAtMs = Number.NEGATIVE_INFINITY
  private waking = false
  private stopping: Promise<void> | undefined
  private early: NodeJS.Timeout | undefined

  /** @throws OverlappingLifecycles when two of its lifecycles would claim the same documents */
  constructor(private readonly options: ReplicaOptions) {
    this.clock = options.clock ?? systemClock
    this.logger = options.logger ?? silentLogger
    this.random = options.random ?? Math.random
    this.observer = observers([options.observer ?? {}], this.logger)
    this.identity = replicaIdentity(options.name ?? `${hostname()}-${process.pid}`, this.random)
    this.serverClock = new ServerClock(this.clock)
    const models = options.lifecycles.map((lifecycle) => lifecycle.model)
    requireDisjoint(models)
    this.registry = new LifecycleRegistry(options.db, options.renewalDb ?? options.db, models, this.logger, this.clock)
    this.looks = new Looks(options.db, this.clock, this.serverClock)
    this.outage = new OutageLog('the tick', this.clock, this.logger)
    this.unknownPhases = models.map(
      (model) =>
        new UnknownPhases(
          model,
          protocolCollection<Document>(options.db, model.collection),
          this.logger,
          () => this.registry.phasesBeside(model),
          (found) => this.broken.get(model.name)?.phase(found),
        ),
    )
    for (const lifecycle of options.lifecycles) this.addRunner(lifecycle)
  }

  /**
   * Checks the server, creates the indexes (or looks for them), registers the lifecycles. `start` and the first tick do it by
   * themselves.
   * @throws ServerTooOld, MissingIndexes, OverlappingLifecycles, BadQueryPlan
   */
  prepare(): Promise<void> {
    this.prepared ??= this.prepareNow().catch((error) => {
      this.prepared = undefined
      throw error
    })
    return this.prepared
  }

  /**
   * One look, and what it calls for: rules, removals, claims. Steps go on after it has returned. Never overlaps itself: a
   * call during a tick gets that tick's counts. Never throws for a database that is away: that is logged with a bound.
   */
  async tick(): Promise<TickCounts> {
    if (this.stopping) return { ruled: 0, removed: 0, due: 0 }
    this.ticking ??= this.tickNow().finally(() => {
      this.ticking = undefined
    })
    return this.ticking
  }

  /** One tick and all that follows from it, until nothing is due and nothing is held. For tests and one-off runs. */
  async runOnce(): Promise<TickCounts> {
    await this.prepare()
    const total: TickCounts = { ruled: 0, removed: 0, due: 0 }
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const counts = await this.tickOrThrow()
      await this.idle()
      total.ruled += counts.ruled
      total.removed += counts.removed
      total.due += counts.due
      if (counts.due + counts.ruled + counts.removed === 0) return total
    }
    throw new Error(`something is still due after ${MAX_ROUNDS} rounds: does a phase move back and forth for ever?`)
  }

  /** Ticks once a second at an offset of its own, until `stop()`. */
  async start(): Promise<void> {
    await this.prepare()
    this.wakeBetweenTicks()
    this.ticker ??= new Ticker(this.clock, TICK_MS, Math.floor(this.random() * TICK_MS), () => this.tick())
    this.ticker.start()
  }

  /** Resumes what it knows to come due by local timers too, for those who call `tick()` by a clock of their own. */
  wakeBetweenTicks(): void {
    this.waking = true
  }

  /** Resolves when this replica holds nothing. */
  async idle(): Promise<void> {
    await Promise.all([...this.runners.values()].map((runner) => runner.idle()))
  }

  /** No more claims; see docs/lock-protocol.md, shutdown. Resolves when nothing of it runs any more. */
  stop(): Promise<void> {
    this.stopping ??= this.stopNow()
    return this.stopping
  }

  status(): ReplicaStatus {
    const runners = [...this.runners.values()]
    const sum = (count: (runner: LifecycleRunner) => number) => runners.reduce((n, runner) => n + count(runner), 0)
    const abandoned = sum((runner) => runner.abandonedCount)
    const notReady: string[] = []
    if (this.stopping) notReady.push('stopping')
    if (this.outage.lasting) notReady.push('the database does not answer')
    if (!this.prepared) notReady.push('not started')
    if (abandoned >= TOO_MANY_ABANDONED) notReady.push(`${abandoned} handlers were given up and still run`)
    return {
      identity: this.identity,
      notReady,
      held: sum((runner) => runner.heldCount),
      queued: sum((runner) => runner.queuedCount),
      running: sum((runner) => runner.runningCount),
      abandoned,
      skipped: [...this.skips.values()].reduce((n, skips) => n + skips.size, 0),
    }
  }

  /** The terms in force for a lifecycle. */
  terms(model: LifecycleModel): Terms {
    const { dueMs, leaseMs, knownUntil } = this.registry.lockTimeout(model)
    return termsOf(dueMs, {
      leaseMs,
      validUntil: knownUntil,
      legacyWriters: model.settings.legacyWriters,
      progress: model.settings.progress,
      backOff: model.settings.backOff,
      protocol: this.options.protocol ?? SAFE_PROTOCOL,
    })
  }

  private addRunner(lifecycle: RunnableLifecycle): void {
    const { model, handlers } = lifecycle
    const { db, renewalDb = db, ownerDb = db } = this.options
    lifecycle.attach(ownerDb)
    const serverNow = () => this.serverClock.now() ?? this.clock.now()
    const { clock, serverClock, random, logger, observer } = this
    const collection = protocolCollection<Document>(db, model.collection)
    const terms = () => this.terms(model)
    const skips = new SkipList(clock)
    const broken = new BrokenReports(model.name, model.settings.progress, observer, logger, clock)
    const runner = new LifecycleRunner({
      model,
      handlers,
      collection,
      renewalCollection: protocolCollection<Document>(renewalDb, model.collection),
      replica: this.identity,
      clock,
      serverClock,
      random,
      logger,
      observer,
      skips,
      broken,
      terms,
      serverNow,
      pauseMs: (waitedMs) => pauseMs(waitedMs, this.registry.lockTimeout(model).dueMs, model.settings.backOff),
      keepTermsFresh: () => this.registry.keepFresh(),
      wakes: () => this.waking,
      lookSoon: () => this.lookSoon(),
    })
    const chores = { model, collection, terms, serverClock, clock, random, observer, skips, broken }
    this.runners.set(model.name, runner)
    this.housekeepers.set(model.name, new Housekeeper(chores))
    this.skips.set(model.name, skips)
    this.broken.set(model.name, broken)
  }

  private async prepareNow(): Promise<void> {
    const { db, lifecycles, indexes = 'create' } = this.options
    await requireServerVersion(db)
    const collections = [...new Set(lifecycles.map(({ model }) => model.collection))]
    if (indexes === 'check') await requireIndexes(db, collections)
    else for (const name of collections) await ensureLockIndexes(db.collection(name))
    await this.registry.requireNoOverlap()
    await this.registry.register()
    await this.checkPlans()
  }

  private async checkPlans(): Promise<void> {
    const { db, onBadPlan = 'warn' } = this.options
    const { looks, serverClock } = this
    const findings = await checkPlans({ db, looks, serverClock, requests: this.lookRequests() }).catch((error) => {
      if (onBadPlan === 'refuse') throw error
      this.logger.warn(`the query plans could not be checked: ${String(error)}`)
      return []
    })
    for (const finding of findings) this.logger.error(`bad query plan: ${describeFinding(finding)}`, finding)
    if (onBadPlan === 'refuse' && findings.length > 0) throw new BadQueryPlan(findings)
  }

  private async tickNow(): Promise<TickCounts> {
    const startedMs = this.clock.monotonicMs()
    const seconds = () => (this.clock.monotonicMs() - startedMs) / 1_000
    try {
      await this.prepare()
      const counts = await this.tickOrThrow()
      this.outage.succeeded()
      this.observer.ticked({ seconds: seconds() })
      return counts
    } catch (error) {
      this.outage.failed(error)
      this.observer.ticked({ seconds: seconds(), error })
      this.lookSoon(RETRY_MS)
      return { ruled: 0, removed: 0, due: 0 }
    }
  }

  private async tickOrThrow(): Promise<TickCounts> {
    // First, so that the look finds what has been mended.
    await Promise.all([...this.housekeepers.values()].map((housekeeper) => housekeeper.repair()))
    const found = await this.look()
    if (!this.registry.adopt(found)) await this.registry.register()
    await this.registry.stamp(found.unstamped)
    const counts: TickCounts = { ruled: 0, removed: 0, due: 0 }
    await Promise.all(this.options.lifecycles.map(({ model }) => this.serve(model, found, counts)))
    await this.checkUnknownPhases()
    return counts
  }

  private look(): Promise<LookResult> {
    return this.looks.look(this.lookRequests(), { maxTimeMS: 10_000 })
  }

  private lookRequests(): LookRequest[] {
    return this.options.lifecycles.map(({ model }) => ({
      ...lookRequestOf(model, this.terms(model)),
      skipped: this.skips.get(model.name)?.ids(),
    }))
  }

  private async serve({ name }: LifecycleModel, found: LookResult, counts: TickCounts): Promise<void> {
    const due = new Set(found.due.get(name) ?? [])
    counts.due += due.size
    try {
      await this.housekeepers.get(name)!.serve(found, due, counts)
    } finally {
      // Also when a rule fails: what is due has nothing to do with that.
      this.runners.get(name)!.offer([...due])
    }
  }

  private async checkUnknownPhases(): Promise<void> {
    const now = this.clock.monotonicMs()
    if (now - this.unknownPhasesAtMs < UNKNOWN_PHASES_EVERY_MS) return
    this.unknownPhasesAtMs = now
    for (const check of this.unknownPhases) await check.check()
  }

  /** A tick ahead of time, one for all that ask meanwhile. */
  private lookSoon(ms = LOOK_SOON_MS): void {
    if (!this.waking || this.early || this.stopping) return
    this.early = setTimeout(() => {
      this.early = undefined
      void this.tick()
    }, ms).unref()
  }

  private async stopNow(): Promise<void> {
    this.ticker?.stop()
    clearTimeout(this.early)
    const { graceMs = 10_000 } = this.options
    const over = new AbortController()
    const wait = (ms: number) => sleep(ms, { signal: over.signal })
    // The claims of a tick under way come first: each runner waits for its own, then gives back what has not begun.
    await Promise.all([...this.runners.values()].map((runner) => runner.stop(graceMs, LAST_CHANCE_MS, wait)))
    over.abort()
    await this.ticking
  }
}
