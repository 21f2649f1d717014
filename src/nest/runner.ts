import {
  Inject,
  Injectable,
  type OnApplicationBootstrap,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common'
import { DiscoveryService, ModuleRef } from '@nestjs/core'
import { Cron, CronExpression, SchedulerRegistry } from '@nestjs/schedule'
import { needed } from '../decorated/index.js'
import { durationMs, sleep, systemClock } from '../time/index.js'
import { ModuleMissing, NoScheduler } from './errors.js'
import { handlerMethods } from './handler-methods.js'
import { LifecycleCatalog } from './lifecycle-catalog.js'
import type { ModuleDatabase } from './module-database.js'
import { ModuleReplicas } from './module-replicas.js'
import type { ModuleSettings } from './options.js'
import { orClose } from './or-close.js'
import { MODULE_DATABASE, MODULE_SETTINGS } from './tokens.js'

/** The name of the tick among the app's cron jobs. */
export const TICK_JOB = 'phaselock'

const TICK_MS = 1_000

/**
 * Runs the app's replicas, one for each database: checks them in onModuleInit, and lets them work from onApplicationBootstrap until
 * onModuleDestroy, when they stop before the app's connections close (running steps still need those).
 */
@Injectable()
export class PhaselockRunner implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy {
  /** The offset within the second at which this replica looks for work, so that replicas spread out. */
  private readonly offsetMs = Math.floor(Math.random() * TICK_MS)
  private readonly stopping = new AbortController()
  private working = false
  private tickedAtMs = Number.NEGATIVE_INFINITY

  constructor(
    @Inject(MODULE_SETTINGS) private readonly settings: ModuleSettings,
    @Inject(MODULE_DATABASE) private readonly database: ModuleDatabase,
    @Inject(LifecycleCatalog) private readonly catalog: LifecycleCatalog,
    @Inject(ModuleReplicas) private readonly replicas: ModuleReplicas,
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(ModuleRef) private readonly modules: ModuleRef,
  ) {}

  async onModuleInit(): Promise<void> {
    await orClose(this.database, () => {
      if (this.settings.tick) this.requireScheduler()
      this.catalog.connect(handlerMethods(this.discovery), { ownersOnly: !this.settings.tick })
      this.requireModules()
    })
  }

  async onApplicationBootstrap(): Promise<void> {
    const { working } = this.replicas
    if (!this.settings.tick || working.length === 0) return
    await orClose(this.database, () => Promise.all(working.map((replica) => replica.prepare())))
    for (const replica of working) replica.wakeBetweenTicks()
    this.working = true
  }

  /**
   * Runs one tick. Never throws and never overlaps: a replica that is still ticking joins that tick.
   * A late call (busy event loop) is better than a skipped one.
   */
  @Cron(CronExpression.EVERY_SECOND, { name: TICK_JOB, threshold: TICK_MS })
  async tick(): Promise<void> {
    if (!this.working) return
    const everyMs = durationMs(this.settings.tickEvery ?? '1s')
    const nowMs = systemClock.monotonicMs()
    // Runs only when an interval has passed; the half second allows for a cron that fires early.
    if (everyMs > TICK_MS && nowMs - this.tickedAtMs < everyMs - TICK_MS / 2) return
    this.tickedAtMs = nowMs
    await sleep(this.offsetMs, { signal: this.stopping.signal })
    if (this.working) await Promise.all(this.replicas.working.map((replica) => replica.tick()))
  }

  async onModuleDestroy(): Promise<void> {
    this.working = false
    this.stopping.abort()
    await Promise.all(this.replicas.working.map((replica) => replica.stop()))
  }

  private requireScheduler(): void {
    if (this.find(SchedulerRegistry) === undefined) throw new NoScheduler('missing')
    const options = this.find('SCHEDULE_MODULE_OPTIONS') as { cronJobs?: boolean } | undefined
    if (options?.cronJobs === false) throw new NoScheduler('crons are off')
  }

  /** Requires the Phaselock modules that this app's decorated methods need; a process that doesn't work leaves those methods to other processes. */
  private requireModules(): void {
    for (const { instance, isAlias } of [...this.discovery.getProviders(), ...this.discovery.getControllers()]) {
      const unmet = isAlias ? [] : needed(instance)
      for (const [need, methods] of Map.groupBy(unmet, (one) => one.need)) {
        const { decorator, module, token } = need.about
        if (token === undefined || this.find(token) !== undefined) continue
        const names = methods.map(({ where }) => where)
        if (this.settings.tick) throw new ModuleMissing(module, names, decorator)
        need.meet(instance)
      }
    }
  }

  private find(token: string | symbol | typeof SchedulerRegistry): unknown {
    try {
      return this.modules.get(token, { strict: false })
    } catch {
      return undefined
    }
  }
}
