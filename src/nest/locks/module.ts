import { type DynamicModule, Global, Module, type Provider } from '@nestjs/common'
import { DiscoveryModule, DiscoveryService } from '@nestjs/core'
import { SETTINGS, settingsIn } from '../../config/index.js'
import { LockExecutor } from '../../locks/index.js'
import { nestLogger } from '../nest-logger.js'
import { executorOf, OpenLocks } from './open-locks.js'
import { type LocksAsyncOptions, type LocksOptions, optionsFrom } from './options.js'

const LOCKS_OPTIONS = Symbol.for('phaselock:locks-options')
const OPEN_LOCKS = Symbol.for('phaselock:open-locks')

const opened: Provider = {
  provide: OPEN_LOCKS,
  inject: [LOCKS_OPTIONS, DiscoveryService],
  useFactory: (options: LocksOptions, discovery: DiscoveryService) => {
    // Refuses unknown ones, as PhaselockModule does.
    settingsIn(
      options?.env ?? process.env,
      SETTINGS.flatMap(({ key, options: paths = [] }) => (paths.some((path) => isGiven(options, path)) ? [key] : [])),
    )
    return OpenLocks.open(options, discovery, nestLogger())
  },
}

/** @param path an option of PhaselockModule's, such as `locks.url` */
const isGiven = (options: LocksOptions | undefined, path: string): boolean =>
  path.startsWith('locks.') && Reflect.get(Object(options), path.slice('locks.'.length)) !== undefined

/**
 * Named locks in a Nest app without PhaselockModule: no part of MongoDB is loaded unless the locks are kept there. (With PhaselockModule
 * they are part of it: its option `locks`.) `LockExecutor` can be injected everywhere.
 * Errors at start: InvalidSchedulerLocks, InvalidLockProvider.
 */
@Global()
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: a Nest module is a class
export class LocksModule {
  /** Without options the environment decides where the locks are kept, as for `openLockProvider`. */
  static forRoot(options: LocksOptions = {}): DynamicModule {
    return moduleWith({ provide: LOCKS_OPTIONS, useValue: options })
  }

  /** The same with options from a factory: a ConfigService, or a client that another module has created. */
  static forRootAsync(options: LocksAsyncOptions): DynamicModule {
    const { provider, imports } = optionsFrom('LocksModule.forRootAsync', LOCKS_OPTIONS, options)
    return moduleWith(provider, imports)
  }
}

function moduleWith(options: Provider, imports: LocksAsyncOptions['imports'] = []): DynamicModule {
  return {
    module: LocksModule,
    imports: [DiscoveryModule, ...imports],
    providers: [options, opened, executorOf(OPEN_LOCKS)],
    exports: [LockExecutor],
  }
}
