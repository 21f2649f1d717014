import {
  type DynamicModule,
  Inject,
  Injectable,
  Module,
  type OnApplicationBootstrap,
  type OnModuleInit,
  Optional,
} from '@nestjs/common'
import { DiscoveryModule, DiscoveryService, ModulesContainer } from '@nestjs/core'
import {
  InvalidTask,
  type ScheduleFields,
  Schedules,
  type SchedulesOptions,
  type TaskRun,
} from '../../schedules/index.js'
import { ModuleConfiguredTwice, ModuleNotConfigured } from '../errors.js'
import { orClose } from '../or-close.js'
import { MODULE_DATABASE, SCHEDULE_LIFECYCLES } from '../tokens.js'
import { declaredTasks, SCHEDULES_NEED, SCHEDULES_OPTIONS } from './scheduled.js'

/** The options of SchedulesModule. The database is that of PhaselockModule; tasks have their dependencies injected into their classes. */
export interface SchedulesModuleOptions extends Omit<SchedulesOptions, 'db' | 'context'> {
  /** Recorded as the author of schedules declared in code. Default `code`. */
  readonly by?: string | undefined
}

/** Finds the methods that are tasks, registers them, and stores the declared schedules. @internal */
@Injectable()
export class ScheduledMethods implements OnModuleInit, OnApplicationBootstrap {
  private readonly declared = new Map<string, ScheduleFields>()

  constructor(
    @Inject(Schedules) private readonly schedules: Schedules,
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    // Optional, because Nest's own error would name a symbol.
    @Optional() @Inject(MODULE_DATABASE) private readonly database: { close(): Promise<void> } | undefined,
    @Inject(SCHEDULES_OPTIONS) private readonly options: SchedulesModuleOptions,
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
  ) {
    if (!database) throw new ModuleNotConfigured(undefined, 'SchedulesModule')
  }

  /** Runs the checks before any task can run. @throws ModuleConfiguredTwice, InvalidTask, InvalidSchedule */
  async onModuleInit(): Promise<void> {
    await orClose(this.database, () => {
      const times = [...this.modules.values()].filter((one) => one.metatype === SchedulesModule).length
      if (times > 1) throw new ModuleConfiguredTwice('SchedulesModule', times)
      this.find()
      for (const [id, fields] of this.declared) this.schedules.check(id, fields)
    })
  }

  async onApplicationBootstrap(): Promise<void> {
    const { by = 'code' } = this.options
    await orClose(this.database, async () => {
      for (const [id, fields] of this.declared) await this.schedules.upsert(id, fields, { by })
    })
  }

  private find(): void {
    const seen = new Set<unknown>()
    for (const wrapper of [...this.discovery.getProviders(), ...this.discovery.getControllers()]) {
      const { instance } = wrapper
      if (wrapper.isAlias || seen.has(instance)) continue
      seen.add(instance)
      const prototype = wrapper.metatype?.prototype
      const found = declaredTasks(wrapper.isDependencyTreeStatic() ? instance : prototype)
      if (found.length === 0) continue
      if (!wrapper.isDependencyTreeStatic() || wrapper.isTransient) {
        throw new InvalidTask(
          `${wrapper.name} has scheduled methods but is not a singleton (it, or something it injects, has request or transient scope); runs have no request: use the default scope`,
        )
      }
      SCHEDULES_NEED.meet(instance)
      for (const one of found) this.add(instance, one)
    }
  }

  private add(instance: object, { method, task, schedule }: ReturnType<typeof declaredTasks>[number]): void {
    const name = task ?? `${instance.constructor.name}.${String(method)}`
    // Looked up for each call, so that a later wrapper of the method (an interceptor, a test's spy) takes part.
    this.schedules.register(name, (args: unknown, run: TaskRun) =>
      (instance as Record<string | symbol, (...all: unknown[]) => unknown>)[method]!(args, run),
    )
    if (!schedule) return
    const { id = name, ...fields } = schedule
    if (this.declared.has(id)) {
      throw new InvalidTask(`two methods declare the schedule '${id}'; give one of them another id`)
    }
    this.declared.set(id, { ...fields, task: name })
  }
}

/**
 * Cron schedules in a Nest app: `@Scheduled` and `@ScheduledTask` on methods of any provider, and `Schedules` to inject. Imported once,
 * beside PhaselockModule.forRoot.
 */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: a Nest module is a class
export class SchedulesModule {
  /** Errors at start: InvalidSchedulesOptions, InvalidTask, InvalidSchedule, ModuleNotConfigured, ModuleConfiguredTwice. */
  static forRoot(options: SchedulesModuleOptions = {}): DynamicModule {
    const { by: _by, ...rest } = options
    return {
      module: SchedulesModule,
      global: true,
      imports: [DiscoveryModule],
      providers: [
        // Created for each app, because it holds the app's tasks and its database.
        { provide: Schedules, useFactory: () => new Schedules(rest) },
        { provide: SCHEDULE_LIFECYCLES, inject: [Schedules], useFactory: ({ lifecycles }: Schedules) => lifecycles },
        { provide: SCHEDULES_OPTIONS, useValue: options },
        ScheduledMethods,
      ],
      exports: [Schedules, SCHEDULE_LIFECYCLES],
    }
  }
}
