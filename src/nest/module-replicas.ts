import {
  type Logger,
  Replica,
  type ReplicaObserver,
  type RunnableLifecycle,
  SharedSemaphore,
  ThreadPool,
} from '../phases/index.js'
import { hooksObserver } from './hooks.js'
import type { LifecycleCatalog } from './lifecycle-catalog.js'
import type { ModuleDatabase } from './module-database.js'
import { nestLogger } from './nest-logger.js'
import type { ModuleSettings } from './options.js'

/** The replicas of an app: one for each database that its lifecycles' documents are in, all of them in this process. */
export class ModuleReplicas {
  /** The replicas by the name of their database. */
  private readonly replicas = new Map<string, Replica>()
  /** The replicas with lifecycles; the module's own database may have none. */
  readonly working: readonly Replica[]

  /** Shared by all replicas: the cores belong to the process. */
  private readonly threads: ThreadPool
  private readonly sharedSemaphore: SharedSemaphore | undefined
  private readonly logger: Logger

  /** @throws OverlappingLifecycles */
  constructor(
    private readonly settings: ModuleSettings,
    private readonly database: ModuleDatabase,
    catalog: LifecycleCatalog,
  ) {
    const { concurrency, threads: size, threadMemoryMb: memoryMb } = settings
    this.logger = settings.logger ?? nestLogger()
    this.threads = new ThreadPool({ size, memoryMb, logger: this.logger })
    this.sharedSemaphore = SharedSemaphore.of(concurrency)
    const lifecycles = new Map<string, RunnableLifecycle[]>([[database.name, []]])
    for (const [name = database.name, found] of catalog.byDatabase) {
      lifecycles.set(name, [...(lifecycles.get(name) ?? []), ...found])
    }
    for (const [name, found] of lifecycles) this.replicas.set(name, this.replicaOf(name, found))
    this.working = [...lifecycles].filter(([, found]) => found.length > 0).map(([name]) => this.of(name))
  }

  /** Returns the replica of the module's own database, or of a database named by a `forFeature`. */
  of(name: string = this.database.name): Replica {
    return this.replicas.get(name)!
  }

  private replicaOf(database: string, lifecycles: readonly RunnableLifecycle[]): Replica {
    const { settings, logger } = this
    const { grace, indexes, doorbell, blockedAfter, clockHold, beatEvery, sweepEvery, tickEvery, alongside } = settings
    const { appVersion } = settings
    return new Replica({
      ...this.database.of(database),
      lifecycles,
      ...{ name: settings.name, appVersion },
      ...{ grace, indexes, doorbell, blockedAfter, clockHold, beatEvery, sweepEvery, tickEvery, alongside, logger },
      threadPool: this.threads,
      mayBeIdle: true,
      sharedSemaphore: this.sharedSemaphore,
      observer: observersOf(settings, logger),
    })
  }
}

/** The observers of the app's replicas. */
export const observersOf = (settings: ModuleSettings, logger: Logger): ReplicaObserver[] =>
  [settings.observer ?? [], hooksObserver(settings, logger)].flat()
