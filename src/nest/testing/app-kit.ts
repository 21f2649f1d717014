import type { INestApplicationContext } from '@nestjs/common'
import type { Db } from 'mongodb'
import type { DatabaseConnection } from '../../database/index.js'
import { checkOptions, t } from '../../options/index.js'
import { sharedOptions } from '../../phases/index.js'
import { LifecycleKit, type LifecycleKitOptions } from '../../testing/index.js'
import { observersOf } from '../module-replicas.js'
import { nestLogger } from '../nest-logger.js'
import type { ModuleSettings } from '../options.js'
import { orClose } from '../or-close.js'
import { MODULE_SETTINGS } from '../tokens.js'
import { type AppBuilder, lifecyclesOf, startApp } from './app-under-test.js'

/** The options of `AppKit.start` besides the app. */
export interface AppKitOptions<Compiled = never, App = unknown> extends Pick<LifecycleKitOptions, 'uri' | 'logger'> {
  /**
   * Creates the app from the compiled module, before it is initialized: `(compiled) => compiled.createNestApplication()` for one that
   * answers HTTP. Default: the compiled module itself.
   */
  app?: ((compiled: Compiled) => App) | undefined
}

const kitOptions = t.object({
  uri: t.optional(t.text),
  logger: sharedOptions.logger,
  app: t.optional(t.aFunction<(compiled: never) => unknown>()),
} satisfies t.TypesOf<AppKitOptions>)

/**
 * A LifecycleKit for a Nest app: its lifecycles, with the methods of its providers as handlers, on an empty database of the test's
 * own. The app is initialized, with the test's overrides; it works on no document until the test asks the kit to.
 *
 * @example
 * ```ts
 * const kit = await AppKit.start(
 *   Test.createTestingModule({ imports: [AppModule] }).overrideProvider(MailServer).useValue(fake),
 * )
 * await kit.app.get(Mailboxes).create('ann')
 * await kit.untilPhase('mailbox', 'ann', 'Created')
 * await kit.close()
 * ```
 */
export class AppKit<App extends INestApplicationContext = INestApplicationContext> extends LifecycleKit {
  /** The initialized app: `kit.app.get(Mailboxes)`. */
  readonly app: App

  private constructor(app: App, kit: LifecycleKitOptions, connection: DatabaseConnection, db: Db) {
    super(kit, connection, db)
    this.app = app
  }

  /**
   * @param builder the result of `Test.createTestingModule({ ... })`, with its overrides, before `compile()`
   * @throws InvalidOptions, ModuleNotConfigured, InvalidHandlers, NoDatabase and other errors of connecting
   */
  static async start<Compiled extends INestApplicationContext, App extends INestApplicationContext = Compiled>(
    builder: AppBuilder<Compiled>,
    given: AppKitOptions<Compiled, App> = {},
  ): Promise<AppKit<App>> {
    const { app: make, ...options } = checkOptions('AppKit.start', kitOptions, given)
    const { connection, db } = await AppKit.connect(options.uri)
    const close = () => db.dropDatabase().finally(() => connection.close())
    return await orClose({ close }, async () => {
      const started = await startApp('AppKit.start', builder, db, make as ((compiled: Compiled) => App) | undefined)
      const settings: ModuleSettings = started.app.get(MODULE_SETTINGS, { strict: false })
      const observer = observersOf(settings, settings.logger ?? nestLogger())
      const kit = { ...options, lifecycles: lifecyclesOf(started), observer }
      return new AppKit(started.app, kit, connection, db)
    })
  }

  /** Closes the app, then everything the kit has opened. */
  override async close(): Promise<void> {
    try {
      await this.app.close()
    } finally {
      await super.close()
    }
  }
}
