import { hostname } from 'node:os'
import type { Db } from 'mongodb'
import { protocolCollection } from '../database/index.js'
import { type LockProvider, mongoLockProvider } from '../locks/index.js'
import {
  type LifecycleModel,
  NotAttached,
  OwnerClient,
  type RunnableLifecycle,
  warningsLogger,
} from '../phases/index.js'
import { systemClock } from '../time/index.js'
import type { NewRun } from './decide.js'
import { editWatch, keepWatch, startWatch, watchNameOf } from './edit-watch.js'
import { InvalidSchedule } from './errors.js'
import { ensureRunIndexes } from './indexes.js'
import { insertRuns, RunStore } from './insert-runs.js'
import { ScheduleObservers } from './observer.js'
import { readSchedulesOptions, type SchedulesOptions, type SchedulesSettings } from './options.js'
import { ScheduleReports } from './reports.js'
import { runLifecycle } from './run-lifecycle.js'
import { RunLocks } from './run-lock.js'
import { scheduleLifecycle } from './schedule-lifecycle.js'
import { ScheduleOwner } from './schedule-owner.js'
import type { NewSchedule } from './schedule-owner-options.js'
import { taskForApp } from './starts.js'
import { type Task, TaskRegistry } from './tasks.js'
import type { Workplace } from './workplace.js'

type Attach = RunnableLifecycle['attach']

/** The collection of the runs' locks unless other locks are given: ShedLock's own. */
const LOCKS = 'shedLock'
/** A lifecycle without a database, with its name for those who register it. */
export type ScheduleLifecycle = RunnableLifecycle & {
  readonly name: string
  /** The reports that metrics show beside the steps; only with the schedules' own lifecycle. */
  readonly reports?: ScheduleReports
}

/**
 * Cron schedules as documents. Pass `lifecycles` to a Replica next to the app's own; the methods are the owner's operations on schedules,
 * from any process.
 */
export class Schedules<Context = unknown> extends ScheduleOwner {
  /** The lifecycles that a replica runs: schedules, runs, and the watch for edits. */
  readonly lifecycles: readonly ScheduleLifecycle[]
  /** The reports for metrics: `replicaMetrics` of phaselock/telemetry finds them in `lifecycles`. */
  readonly reports: ScheduleReports
  private readonly observers: ScheduleObservers
  private readonly registry: TaskRegistry<Context>
  /** The database of the owner's methods. */
  private ownerDb: Db | undefined
  /** The database of the replica's work, with its own connection. */
  private replicaDb: Db | undefined
  private runOwner: OwnerClient | undefined
  private provider: LockProvider | undefined
  private runModel: LifecycleModel | undefined
  private ringing: Parameters<Attach>[1]
  /** What its replica runs, and where. */
  private beside: { readonly db: Db; readonly models: readonly LifecycleModel[] } | undefined
  private readonly owners = new Map<LifecycleModel, OwnerClient>()

  /** @throws InvalidSchedulesOptions, InvalidTask */
  constructor(options: SchedulesOptions<Context> = {}) {
    const settings = readSchedulesOptions(options)
    super(settings.collections)
    this.registry = new TaskRegistry(options.tasks ?? {}, (task) =>
      taskForApp(task, (model) => this.ownerBeside(model)),
    )
    this.ownerDb = options.db
    this.provider = options.locks
    this.observers = new ScheduleObservers(options.logger ?? warningsLogger)
    if (options.observer) this.observers.add(options.observer)
    if (settings.doorbell) this.ringing = { doorbell: settings.doorbell }
    this.reports = new ScheduleReports(settings.collections, this.observers, this.registry)
    this.lifecycles = this.lifecyclesOf(options, settings)
  }

  /**
   * Adds a task to those that this process knows.
   * @throws InvalidTask
   */
  register(name: string, task: Task<Context>): this {
    this.registry.add(name, task)
    return this
  }

  /** Resolves once replicas were notified of the requested runs, or that was given up: for a program that ends. */
  async flush(): Promise<void> {
    await this.runOwner?.flush()
  }

  /** The names of the tasks that this process knows so far: those of the options, and those that were registered. */
  get taskNames(): readonly string[] {
    return this.registry.names
  }

  protected override get db(): Db {
    if (!this.ownerDb) throw new NotAttached('schedules')
    return this.ownerDb
  }

  protected override async ringFor(runId: string): Promise<void> {
    await this.runsOwner().wake(runId)
  }

  protected override insertRun(run: NewRun): Promise<number> {
    return insertRuns(this.runsOwner(), [run])
  }

  /** Rejects a task that this process doesn't know, if it knows any. */
  protected override checkTask(id: string, given: NewSchedule): void {
    const { names } = this.registry
    if (names.length === 0 || typeof given.task !== 'string' || names.includes(given.task)) return
    throw new InvalidSchedule(id, [
      `task: expected one of those that are registered (${names.join(', ')}), got '${given.task}'`,
    ])
  }

  private ours(): Db {
    return this.replicaDb ?? this.db
  }

  /** The client that stores runs and notifies the replicas that listen. */
  private runsOwner(): OwnerClient {
    this.runOwner ??= new OwnerClient(this.ours(), this.runModel!, this.ringing)
    return this.runOwner
  }

  private ownerBeside(model: LifecycleModel): OwnerClient | undefined {
    if (!this.beside?.models.includes(model)) return undefined
    const owner = this.owners.get(model) ?? new OwnerClient(this.beside.db, model, this.ringing)
    this.owners.set(model, owner)
    return owner
  }

  private lifecyclesOf(options: SchedulesOptions<Context>, settings: SchedulesSettings): ScheduleLifecycle[] {
    const { logger = warningsLogger, clock = systemClock } = options
    const { collections, lockAtMostForMs } = settings
    const { observers } = this
    const name = options.name ?? (process.env['POD_NAME'] || `${hostname()}-${process.pid}`)
    const provider = () => {
      this.provider ??= mongoLockProvider(this.ours(), { name, collection: LOCKS })
      return this.provider
    }
    const workplace: Workplace<Context> = {
      ...{ name, settings, clock, logger, observers },
      tasks: this.registry,
      context: options.context ?? (() => undefined as Context),
      locks: new RunLocks({ provider, lockAtMostForMs, clock, logger, observers }),
      store: new RunStore(() => this.runsOwner()),
      db: () => this.ours(),
      schedules: () => protocolCollection(this.ours(), collections.schedules),
      runs: () => protocolCollection(this.ours(), collections.runs),
    }
    const schedules = scheduleLifecycle(workplace)
    const runs = runLifecycle(workplace)
    this.runModel = runs.model
    const attach: Attach = (db, ringing, beside = []) => {
      this.ownerDb ??= db
      this.ringing = settings.doorbell ? { doorbell: settings.doorbell } : ringing
      this.beside = { db, models: beside }
      this.owners.clear()
    }
    return [
      {
        ...partsOf(schedules),
        reports: this.reports,
        attach,
        rights: [
          { collection: collections.runs, actions: ['find', 'insert'] },
          ...(options.locks ? [] : [{ collection: LOCKS, actions: ['find', 'insert', 'update'] }]),
        ],
        prepare: async (db) => {
          this.replicaDb = db
          this.runOwner = undefined
        },
      },
      {
        ...partsOf(runs),
        attach,
        // Runs of other tasks are left to replicas that know them.
        only: () => ({
          phases: ['Queued', 'Running'],
          where: { task: { $in: this.registry.names } },
          knows: this.registry.names,
        }),
        rights: [{ collection: collections.runs, actions: ['remove'] }],
        prepare: (db, indexes) => ensureRunIndexes(db.collection(collections.runs), indexes, logger),
      },
      {
        ...partsOf(editWatch(workplace)),
        attach,
        rights: [{ collection: watchNameOf(settings), actions: ['insert'] }],
        prepare: async (db) => void (await startWatch(db, settings)),
        alongside: [keepWatch(settings)],
      },
    ]
  }
}

const partsOf = ({ name, model, handlers }: ScheduleLifecycle) => ({ name, model, handlers, plainNumbers: true })
