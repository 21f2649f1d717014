import { type DynamicModule, Module, type ModuleMetadata, type Provider } from '@nestjs/common'
import { Schedules, type Task } from 'phaselock/schedules'
import { Repositories, type RepositoriesOptions } from '../sync/index.js'

/** The options of `RepositoriesModule.forRootAsync`, as Nest's own modules have them. */
export interface RepositoriesModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  // biome-ignore lint/suspicious/noExplicitAny: Nest's type of injected tokens
  readonly inject?: any[]
  // biome-ignore lint/suspicious/noExplicitAny: what was injected
  readonly useFactory: (...injected: any[]) => RepositoriesOptions | Promise<RepositoriesOptions>
}

const OPTIONS = Symbol.for('phaselock:repositories-options')

/**
 * Repositories in a Nest app: `Repositories` can be injected everywhere, and its lifecycles go to PhaselockModule. An app with SchedulesModule gets
 * the schedules of repositories among its own.
 *
 * @example
 * ```ts
 * RepositoriesModule.forRootAsync({
 *   inject: [DB, QdrantClient],
 *   useFactory: (db: Db, client: QdrantClient) => ({ db, store: qdrant(client), embeddings: embeddings(model, { kept: mongoVectors(db) }) }),
 * })
 * PhaselockModule.forRootAsync({
 *   inject: [DB, Repositories],
 *   useFactory: (db: Db, { lifecycles }: Repositories) => ({ db, lifecycles }),
 * })
 * ```
 */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: the shape of a dynamic module
export class RepositoriesModule {
  /** Errors at start: InvalidOptions. */
  static forRoot(options: RepositoriesOptions): DynamicModule {
    return RepositoriesModule.forRootAsync({ useFactory: () => options })
  }

  /** Errors at start: InvalidOptions, and what the factory throws. */
  static forRootAsync({ imports = [], inject = [], useFactory }: RepositoriesModuleAsyncOptions): DynamicModule {
    const options: Provider = { provide: OPTIONS, inject, useFactory }
    const repositories: Provider = {
      provide: Repositories,
      inject: [OPTIONS, { token: Schedules, optional: true }],
      useFactory: (given: RepositoriesOptions, schedules: Schedules | undefined) =>
        new Repositories(schedules && given && !given.schedules ? { ...given, schedules: among(schedules) } : given),
    }
    return {
      module: RepositoriesModule,
      global: true,
      imports,
      providers: [options, repositories],
      exports: [Repositories],
    }
  }
}

/** Registers this package's tasks with the app's schedules. */
const among =
  (schedules: Schedules) =>
  (tasks: Readonly<Record<string, Task>>): Schedules => {
    for (const [name, task] of Object.entries(tasks)) schedules.register(name, task)
    return schedules
  }
