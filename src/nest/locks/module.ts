import {
  type DynamicModule,
  Global,
  Inject,
  Logger,
  Module,
  type OnApplicationShutdown,
  type OnModuleInit,
  type Provider,
} from '@nestjs/common'
import { DiscoveryModule, DiscoveryService } from '@nestjs/core'
import { LockExecutor } from '../../locks/index.js'
import { type OpenLocks, openLocks } from './open-locks.js'
import type { LocksAsyncOptions, LocksOptions } from './options.js'

const LOCKS_OPTIONS = Symbol.for('phaselock:locks-options')
const OPEN_LOCKS = Symbol.for('phaselock:open-locks')

const log = new Logger('Phaselock')
const shown = (fields?: object) => (fields ? ` ${JSON.stringify(fields)}` : '')
const nestLog = {
  debug: (message: string, fields?: object) => log.debug(message + shown(fields)),
  warn: (message: string, fields?: object) => log.warn(message + shown(fields)),
}

const opened: Provider = {
  provide: OPEN_LOCKS,
  inject: [LOCKS_OPTIONS, DiscoveryService],
  useFactory: (options: LocksOptions, discovery: DiscoveryService) => openLocks(options, discovery, nestLog),
}

const executor: Provider = {
  provide: LockExecutor,
  inject: [OPEN_LOCKS],
  useFactory: ({ executor }: OpenLocks) => executor,
}

/**
 * Named locks in a Nest app without PhaselockModule: nothing of MongoDB is loaded unless the locks are kept there. (With PhaselockModule
 * they are part of it: its option `locks`.) `LockExecutor` can be injected everywhere.
 * Errors at start: InvalidSchedulerLocks, InvalidLockProvider.
 */
@Global()
@Module({})
export class LocksModule implements OnModuleInit, OnApplicationShutdown {
  constructor(@Inject(OPEN_LOCKS) private readonly locks: OpenLocks) {}

  static forRoot(options: LocksOptions = {}): DynamicModule {
    return moduleWith({ provide: LOCKS_OPTIONS, useValue: options })
  }

  static forRootAsync({ imports = [], inject = [], useFactory }: LocksAsyncOptions): DynamicModule {
    return moduleWith({ provide: LOCKS_OPTIONS, inject, useFactory }, imports)
  }

  onModuleInit(): void {
    this.locks.binder.bindInstances()
  }

  async onApplicationShutdown(): Promise<void> {
    await this.locks.close()
  }
}

function moduleWith(options: Provider, imports: LocksAsyncOptions['imports'] = []): DynamicModule {
  return {
    module: LocksModule,
    imports: [DiscoveryModule, ...imports],
    providers: [options, opened, executor],
    exports: [LockExecutor],
  }
}
