import type { OnApplicationShutdown, OnModuleInit, Provider } from '@nestjs/common'
import type { DiscoveryService } from '@nestjs/core'
import { noted } from '../../decorated/index.js'
import {
  InvalidLockConfig,
  type LockDb,
  LockExecutor,
  type LockObserver,
  type LockProvider,
  type OperableLockProvider,
  openLockProvider,
} from '../../locks/index.js'
import type { Logger } from '../../phases/index.js'
import { InvalidSchedulerLocks } from '../errors.js'
import { orClose } from '../or-close.js'
import { bindScope, LOCKED, type LockDeclaration, LockScope, unbindScope } from './lock-scope.js'
import { checkedLocksOptions, type LocksOptions } from './options.js'

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number]

/** An app's open locks, bound to its classes and objects with decorated methods. */
export class OpenLocks implements OnModuleInit, OnApplicationShutdown {
  private readonly classes = new Set<object>()

  private constructor(
    readonly executor: LockExecutor,
    private readonly scope: LockScope,
    private readonly discovery: DiscoveryService,
    /** Undefined: the provider was passed in. */
    private readonly opened: OperableLockProvider | undefined,
  ) {}

  /**
   * Opens the locks. Call it before the first instance is created, so that an instance that calls a locked method during start has its locks.
   * @param more.fallback the app's own database, for locks that no option places elsewhere
   * @throws InvalidSchedulerLocks listing the problems of each method's options; InvalidLockProvider
   */
  static async open(
    given: LocksOptions | undefined,
    discovery: DiscoveryService,
    log: Logger,
    more: { readonly fallback?: LockDb; readonly name?: string | undefined } = {},
  ): Promise<OpenLocks> {
    const { provider: asked, defaults = {}, settings, observer, ...options } = checkedLocksOptions(given)
    const opened = isProvider(asked)
      ? undefined
      : await openLockProvider({ ...options, provider: asked, name: options.name ?? more.name }, more.fallback)
    const provider = opened ?? (asked as LockProvider)
    const executor = new LockExecutor(provider, { observer: [logging(log), ...(observer ? [observer] : [])] })
    const skipped = (where: string, lock: string, heldBy: string | undefined) =>
      log.debug(`skipping ${where}: its lock is held`, { lock, heldBy })
    const scope = new LockScope(executor, defaults, settings ?? options.env ?? process.env, skipped)
    const locks = new OpenLocks(executor, scope, discovery, opened)
    await orClose(locks, () => locks.bindClasses())
    return locks
  }

  private bindClasses(): void {
    const declarations = new Set<LockDeclaration>()
    for (const { metatype, token } of this.wrappers()) {
      for (const type of [metatype, token].filter((one) => typeof one === 'function')) {
        const found = [type, type.prototype].flatMap((one) => noted<LockDeclaration>(one, LOCKED))
        if (found.length > 0) {
          bindScope(type, this.scope)
          this.classes.add(type)
        }
        for (const one of found) declarations.add(one)
      }
    }
    const problems = [...declarations].flatMap((one) => this.problemsOf(one))
    if (problems.length > 0) throw new InvalidSchedulerLocks(problems)
  }

  /** Binds instances, because two apps in one process may have the same classes; an instance belongs to one of them. */
  onModuleInit(): void {
    for (const { instance } of this.wrappers()) {
      if (typeof instance === 'object' && noted(instance, LOCKED).length > 0) bindScope(instance, this.scope)
    }
  }

  /** Closes the provider that was opened here; another open app with the same classes keeps its own locks. */
  async close(): Promise<void> {
    for (const type of this.classes) unbindScope(type, this.scope)
    await this.opened?.close()
  }

  onApplicationShutdown(): Promise<void> {
    return this.close()
  }

  private wrappers(): Wrapper[] {
    return [...this.discovery.getProviders(), ...this.discovery.getControllers()]
  }

  private problemsOf(declaration: LockDeclaration): readonly string[] {
    try {
      this.scope.configOf(declaration)
      return []
    } catch (error) {
      if (error instanceof InvalidSchedulerLocks) return error.problems
      if (!(error instanceof InvalidLockConfig)) throw error
      return error.problems.map((problem) => `${declaration.where}: ${problem}`)
    }
  }
}

/** @param locks the provider of the OpenLocks */
export const executorOf = (locks: symbol): Provider => {
  return { provide: LockExecutor, inject: [locks], useFactory: ({ executor }: OpenLocks) => executor }
}

const isProvider = (value: LocksOptions['provider']): value is LockProvider =>
  typeof value === 'object' && value !== null && typeof value.lock === 'function'

const logging = (log: Logger): LockObserver => ({
  lost: (event) => log.warn('a lock ended before its task: it expired, was freed, or could not be extended', event),
  failed({ name, action, error }) {
    const what = action === 'extend' ? 'extended; trying again' : 'unlocked; it expires by itself'
    log.warn(`a lock could not be ${what}`, { lock: name, cause: String(error) })
  },
})
