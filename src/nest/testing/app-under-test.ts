import type { INestApplicationContext } from '@nestjs/common'
import { DiscoveryService } from '@nestjs/core'
import type { Db } from 'mongodb'
import { InvalidOptions } from '../../options/index.js'
import type { RunnableLifecycle } from '../../phases/index.js'
import { InvalidHandlers, ModuleNotConfigured } from '../errors.js'
import { handlerMethods } from '../handler-methods.js'
import { type FeatureLifecycle, LifecycleCatalog } from '../lifecycle-catalog.js'
import type { ModuleDatabase } from '../module-database.js'
import { PhaselockRunner } from '../runner.js'
import { MODULE_DATABASE } from '../tokens.js'

/** The result of `Test.createTestingModule({ ... })` of @nestjs/testing, with its overrides, before `compile()`. */
export interface AppBuilder<App extends INestApplicationContext> {
  /** Replaces one provider, identified by its injection token. */
  overrideProvider(token: unknown): {
    useValue(value: unknown): unknown
    // biome-ignore lint/suspicious/noExplicitAny: what is injected is known to its writer only
    useFactory(options: { factory: (...injected: any[]) => unknown; inject?: any[] }): unknown
  }
  /** Builds the app. */
  compile(): Promise<App>
}

/** An initialized app on a test's database, which works on no document of its own accord. */
export interface AppUnderTest<App> {
  readonly app: App
  readonly catalog: LifecycleCatalog
}

/**
 * Compiles and initializes an app with all of its providers, but on this database, whatever its options name, and without a tick.
 * @throws InvalidOptions, ModuleNotConfigured, InvalidHandlers, and the errors of the app's own providers
 */
export async function startApp<
  Compiled extends INestApplicationContext,
  App extends INestApplicationContext = Compiled,
>(
  who: string,
  builder: AppBuilder<Compiled>,
  db: Db,
  make = (compiled: Compiled) => compiled as INestApplicationContext as App,
): Promise<AppUnderTest<App>> {
  if (typeof builder?.overrideProvider !== 'function' || typeof builder.compile !== 'function')
    throw new InvalidOptions(who, [
      'app: expected what Test.createTestingModule({ ... }) returns, got something else; leave out compile(), since the app gets the database of the test when it is compiled',
    ])
  const databases = { ownerDb: db, db, renewalDb: db, doorbellDb: undefined }
  const database: ModuleDatabase = { name: db.databaseName, of: () => databases, close: async () => {} }
  builder.overrideProvider(MODULE_DATABASE).useValue(database)
  // Replaces the runner: it finds the handlers like the runner, and never ticks.
  builder.overrideProvider(PhaselockRunner).useFactory({
    inject: [LifecycleCatalog, DiscoveryService],
    factory: (catalog: LifecycleCatalog, discovery: DiscoveryService) => ({
      onModuleInit: () => catalog.connect(handlerMethods(discovery), { ownersOnly: false }),
    }),
  })
  const app = make(await builder.compile())
  try {
    const catalog = catalogOf(app)
    await app.init()
    return { app, catalog }
  } catch (error) {
    await app.close().catch(() => {})
    throw error
  }
}

function catalogOf(app: INestApplicationContext): LifecycleCatalog {
  let catalog: LifecycleCatalog
  try {
    catalog = app.get(LifecycleCatalog, { strict: false })
  } catch {
    throw new ModuleNotConfigured()
  }
  if (catalog.byDatabase.size === 0)
    throw new InvalidHandlers([
      'expected lifecycles in this app, got none; add PhaselockModule.forFeature([...]) to the imports of the module that handles their phases',
    ])
  return catalog
}

/** The app's lifecycles for a test's replicas, which come and go: the app keeps its own database. */
export const lifecyclesOf = ({ catalog }: AppUnderTest<unknown>): RunnableLifecycle[] =>
  [...catalog.byDatabase.values()].flat().map(withoutAttach)

const withoutAttach = (lifecycle: RunnableLifecycle): RunnableLifecycle =>
  Object.create(lifecycle, { attach: { value: () => {} } })

/**
 * A lifecycle of a Nest app for `race`: each replica of each run is an app of its own, which is closed afterwards.
 *
 * @example
 * ```ts
 * const report = await race({
 *   outside: () => new FakeMailServer(),
 *   lifecycle: (server, db) => lifecycleInApp(appWith(server), mailbox, db),
 *   document: { _id: 'ann', phase: 'Creating' },
 * })
 * ```
 * @param builder with the run's outside world in place of the app's own
 * @param lifecycle one that a `forFeature` of the app names
 * @param db the run's database, as passed by `race`
 * @throws InvalidOptions, ModuleNotConfigured, InvalidHandlers, and the errors of the app's own providers
 */
export async function lifecycleInApp<App extends INestApplicationContext>(
  builder: AppBuilder<App>,
  lifecycle: FeatureLifecycle,
  db: Db,
): Promise<RunnableLifecycle & AsyncDisposable> {
  const { app, catalog } = await startApp('lifecycleInApp', builder, db)
  const found = catalog.bound(lifecycle)
  if (!found) {
    await app.close()
    const known = [...catalog.byDatabase.values()].flat().map(({ model }) => model.name)
    throw new InvalidHandlers([
      `expected one of the app's lifecycles (${known.join(', ')}), got '${lifecycle?.name}'; add it to a PhaselockModule.forFeature([...])`,
    ])
  }
  return Object.assign(withoutAttach(found), { [Symbol.asyncDispose]: () => app.close() })
}
