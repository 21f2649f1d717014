import { type DynamicModule, Global, Inject, Module, type OnApplicationShutdown, type Provider } from '@nestjs/common'
import { DiscoveryModule, DiscoveryService, ModulesContainer } from '@nestjs/core'
import { LockExecutor } from '../locks/index.js'
import { shown } from '../options/index.js'
import { type BoundLifecycle, Replica, type RunnableLifecycle } from '../phases/index.js'
import { InvalidHandlers, InvalidModuleOptions, ModuleConfiguredTwice, ModuleNotConfigured } from './errors.js'
import { type FeatureLifecycle, FeatureLifecycles, LifecycleCatalog } from './lifecycle-catalog.js'
import { LocksModule } from './locks/index.js'
import { executorOf, OpenLocks } from './locks/open-locks.js'
import { optionsFrom } from './locks/options.js'
import { type ModuleDatabase, openModuleDatabase } from './module-database.js'
import { ModuleReplicas } from './module-replicas.js'
import { nestLogger } from './nest-logger.js'
import {
  type FeatureOptions,
  type ModuleSettings,
  type PhaselockModuleAsyncOptions,
  type PhaselockModuleOptions,
  parseFeatureOptions,
} from './options.js'
import { orClose } from './or-close.js'
import { PhaselockRunner } from './runner.js'
import { moduleSettings } from './settings.js'
import {
  getLifecycleToken,
  getReplicaToken,
  MODULE_DATABASE,
  MODULE_LOCKS,
  MODULE_SETTINGS,
  PHASELOCK_OPTIONS,
  SCHEDULE_LIFECYCLES,
} from './tokens.js'

const settings: Provider = {
  provide: MODULE_SETTINGS,
  inject: [PHASELOCK_OPTIONS],
  useFactory: (options: PhaselockModuleOptions): Promise<ModuleSettings> =>
    moduleSettings(options, options?.logger ?? nestLogger()),
}

const catalog: Provider = {
  provide: LifecycleCatalog,
  inject: [MODULE_SETTINGS, DiscoveryService, ModulesContainer, { token: SCHEDULE_LIFECYCLES, optional: true }],
  useFactory: (
    { lifecycles }: ModuleSettings,
    discovery: DiscoveryService,
    modules: ModulesContainer,
    ofSchedules: readonly RunnableLifecycle[] = [],
  ) => {
    const times = [...modules.values()].filter((one) => one.metatype === PhaselockCoreModule).length
    if (times > 1) throw new ModuleConfiguredTwice('PhaselockModule', times)
    return new LifecycleCatalog(discovery, [...lifecycles, ...ofSchedules])
  },
}

const database: Provider = {
  provide: MODULE_DATABASE,
  inject: [MODULE_SETTINGS, LifecycleCatalog],
  useFactory: (given: ModuleSettings, lifecycles: LifecycleCatalog) =>
    openModuleDatabase(given, lifecycles.lockTimeoutMs, given.logger ?? nestLogger()),
}

const replicas: Provider = {
  provide: ModuleReplicas,
  inject: [MODULE_SETTINGS, MODULE_DATABASE, LifecycleCatalog],
  useFactory: (given: ModuleSettings, opened: ModuleDatabase, lifecycles: LifecycleCatalog) =>
    orClose(opened, () => new ModuleReplicas(given, opened, lifecycles)),
}

const locks: Provider = {
  provide: MODULE_LOCKS,
  inject: [MODULE_SETTINGS, MODULE_DATABASE, DiscoveryService, ModulesContainer],
  useFactory: (given: ModuleSettings, opened: ModuleDatabase, discovery: DiscoveryService, modules: ModulesContainer) =>
    orClose(opened, () => {
      if ([...modules.values()].some((one) => one.metatype === LocksModule))
        throw new InvalidModuleOptions([
          'locks: expected LocksModule in apps without PhaselockModule only, got both; remove it and pass its options to PhaselockModule as `locks`',
        ])
      const more = { fallback: opened.of().db, name: given.name }
      return OpenLocks.open({ env: given.env, ...given.locks }, discovery, given.logger ?? nestLogger(), more)
    }),
}

/** The app-wide part, shared by all of its modules. Because it is global it is shut down last: the database outlives the steps. @internal */
@Global()
@Module({})
export class PhaselockCoreModule implements OnApplicationShutdown {
  constructor(@Inject(MODULE_DATABASE) private readonly opened: ModuleDatabase) {}

  /** Called after the same hook of its providers, so the locks are already closed. */
  async onApplicationShutdown(): Promise<void> {
    await this.opened.close()
  }
}

/**
 * Phaselock in a Nest app. The root module imports `forRoot` (or `forRootAsync`) once, and ScheduleModule.forRoot() of
 * @nestjs/schedule, whose cron runs the tick. Each module with lifecycles of its own imports `forFeature`.
 */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: a Nest module is a class
export class PhaselockModule {
  /** Errors at start: InvalidModuleOptions, InvalidHandlers, NoScheduler, and the errors of `connectDatabase()` and of a replica's start. */
  static forRoot(options: PhaselockModuleOptions = {}): DynamicModule {
    return rootModule({ provide: PHASELOCK_OPTIONS, useValue: options })
  }

  /** The same with options from a factory: a ConfigService, or a connection that another module has opened. */
  static forRootAsync(options: PhaselockModuleAsyncOptions): DynamicModule {
    const { provider, imports } = optionsFrom('PhaselockModule.forRootAsync', PHASELOCK_OPTIONS, options)
    return rootModule(provider, imports)
  }

  /**
   * Registers lifecycles: definitions, whose handlers are methods with `@lifecycle.OnPhase(...)` of any provider of the app, or
   * the results of `lifecycle.handle({...})`. Each can be injected with `@InjectLifecycle(lifecycle)`. With `database` their
   * documents are in that database of the same server, and a replica of its own works on them, in the same process.
   * @throws InvalidModuleOptions
   */
  static forFeature(lifecycles: readonly FeatureLifecycle[], options: FeatureOptions = {}): DynamicModule {
    if (!Array.isArray(lifecycles))
      throw new InvalidHandlers([`forFeature: expected a list of lifecycles, got ${shown(lifecycles)}`])
    const { database: name } = parseFeatureOptions(options)
    const providers = [
      ...lifecycles.filter((lifecycle) => lifecycle?.model).map(lifecycleProvider),
      ...(name === undefined ? [] : [replicaProvider(getReplicaToken(name), name)]),
    ]
    return {
      module: PhaselockModule,
      providers: [{ provide: FeatureLifecycles, useValue: new FeatureLifecycles(lifecycles, name) }, ...providers],
      exports: providers.map((provider) => provider.provide),
    }
  }
}

/** The runner isn't global: its onModuleDestroy, which ends the work, runs before the one of the modules that the work uses. */
function rootModule(options: Provider, imports: PhaselockModuleAsyncOptions['imports'] = []): DynamicModule {
  const core: DynamicModule = {
    module: PhaselockCoreModule,
    imports: [DiscoveryModule, ...imports],
    providers: [
      options,
      settings,
      catalog,
      database,
      locks,
      executorOf(MODULE_LOCKS),
      replicas,
      replicaProvider(Replica),
    ],
    exports: [MODULE_SETTINGS, MODULE_DATABASE, LockExecutor, LifecycleCatalog, ModuleReplicas, Replica],
  }
  return { module: PhaselockModule, imports: [core, DiscoveryModule], providers: [PhaselockRunner] }
}

function lifecycleProvider(lifecycle: FeatureLifecycle) {
  return {
    provide: getLifecycleToken(lifecycle),
    // Injected because the replicas have given the lifecycles their databases.
    inject: [LifecycleCatalog, ModuleReplicas].map((token) => ({ token, optional: true })),
    useFactory: (known: LifecycleCatalog | undefined, running: ModuleReplicas | undefined) => {
      if (!known || !running) throw new ModuleNotConfigured(lifecycle.name)
      const bound = known.bound(lifecycle) as BoundLifecycle | undefined
      if (!bound)
        throw new InvalidHandlers([
          `lifecycle '${lifecycle.name}' was added after the app was created; a module with lifecycles can't be loaded lazily`,
        ])
      return bound
    },
  }
}

function replicaProvider(provide: string | typeof Replica, name?: string) {
  return { provide, inject: [ModuleReplicas], useFactory: (all: ModuleReplicas) => all.of(name) }
}
