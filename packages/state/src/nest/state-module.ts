import {
  type DynamicModule,
  Inject,
  Module,
  type ModuleMetadata,
  type OnApplicationShutdown,
  type Provider,
} from '@nestjs/common'
import { InvalidOptions } from 'phaselock'
import { ConfigStore } from '../config/index.js'
import { Logins } from '../logins/index.js'
import { checked, having } from '../options.js'
import { SharedStore } from '../store/index.js'

/** The parts of the shared state that an app uses; the module starts and closes them. */
export interface StateModuleOptions {
  readonly store?: SharedStore | undefined
  /** It is started before the module's providers are made, so that they can read it. */
  readonly config?: ConfigStore | undefined
  readonly logins?: Logins | undefined
}

/** The options of `StateModule.forRootAsync`, as Nest's own modules have them. */
export interface StateModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  // biome-ignore lint/suspicious/noExplicitAny: Nest's type of injected tokens
  readonly inject?: any[]
  // biome-ignore lint/suspicious/noExplicitAny: what was injected
  readonly useFactory: (...injected: any[]) => StateModuleOptions | Promise<StateModuleOptions>
}

const PARTS = Symbol.for('phaselock:state-parts')
const toUse = {
  store: having<SharedStore>(['of', 'close'], 'a SharedStore'),
  config: having<ConfigStore>(['start', 'stop'], 'a ConfigStore'),
  logins: having<Logins>(['context', 'refresh'], 'a Logins'),
}

/**
 * The shared state in a Nest app: `SharedStore`, `ConfigStore` and `Logins` can be injected everywhere.
 *
 * @example
 * ```ts
 * StateModule.forRootAsync({
 *   inject: [DB],
 *   useFactory: (db: Db) => {
 *     const store = new SharedStore({ client: db })
 *     return { store, config: new ConfigStore({ db, configs: [mail] }), logins: new Logins({ db, store }) }
 *   },
 * })
 * ```
 */
@Module({})
export class StateModule implements OnApplicationShutdown {
  constructor(@Inject(PARTS) private readonly parts: StateModuleOptions) {}

  /** @throws InvalidOptions */
  static forRoot(options: StateModuleOptions): DynamicModule {
    checked('StateModule.forRoot', toUse, options)
    return moduleOf({ useFactory: () => options })
  }

  /** Errors at start: InvalidOptions, and what `ConfigStore.start` throws. */
  static forRootAsync(options: StateModuleAsyncOptions): DynamicModule {
    return moduleOf(options)
  }

  /** The last step of Nest's shutdown: handlers of steps may need the state until then. */
  async onApplicationShutdown(): Promise<void> {
    await this.parts.config?.stop()
    await this.parts.store?.close()
  }
}

function moduleOf({ imports = [], inject = [], useFactory }: StateModuleAsyncOptions): DynamicModule {
  const parts: Provider = {
    provide: PARTS,
    inject,
    useFactory: async (...injected: unknown[]) => {
      const made = await useFactory(...injected)
      checked('StateModule', toUse, made)
      await made.config?.start()
      return made
    },
  }
  const part = (
    token: typeof SharedStore | typeof ConfigStore | typeof Logins,
    name: keyof StateModuleOptions,
  ): Provider => ({
    provide: token,
    inject: [PARTS],
    useFactory: (made: StateModuleOptions) => made[name] ?? missing(name, token),
  })
  const providers = [parts, part(SharedStore, 'store'), part(ConfigStore, 'config'), part(Logins, 'logins')]
  return { module: StateModule, global: true, imports, providers, exports: providers.slice(1) }
}

/** A part that the app doesn't have fails where one of its methods is used, not where the module is made. */
const missing = (name: string, { prototype }: { readonly prototype: object }): object =>
  new Proxy(
    {},
    {
      get: (_target, property) => {
        if (property === 'constructor' || !Object.hasOwn(prototype, property)) return undefined
        const problem = `expected ${name} among its options, because ${String(property)} of it is used, got none`
        throw new InvalidOptions('StateModule', [problem])
      },
    },
  )
