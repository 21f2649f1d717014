import type { ModuleMetadata, Provider } from '@nestjs/common'
import type { LockObserver, LockProvider, LockProviderOptions } from '../../locks/index.js'
import { checkOptions, InvalidOptions, t, unknownOptions } from '../../options/index.js'
import { InvalidSchedulerLocks } from '../errors.js'
import type { LockDefaults, LockSettings } from './lock-scope.js'

/** The locks of a Nest app: where they are kept, and the defaults of its methods with `@SchedulerLock`. */
export interface LocksOptions extends Omit<LockProviderOptions, 'provider'> {
  /** A kind of provider, or one of your own. Default: by `url`, `client`, or the environment. */
  readonly provider?: LockProviderOptions['provider'] | LockProvider
  /** Defaults for methods whose `@SchedulerLock` doesn't set them: `lockAtMostFor`, `lockAtLeastFor` and `watchdog`. */
  readonly defaults?: LockDefaults | undefined
  /** Resolves `${KEY}` in a lock's options, such as `(key) => config.get(key)`. Default: the environment. */
  readonly settings?: LockSettings | undefined
  /** Notified of what the app's locks do, such as `lockMetrics().observer`. Failures are in the app's log in any case. */
  readonly observer?: LockObserver | undefined
}

/** The options of a `forRootAsync`: a factory of the options, and its dependencies. */
export interface AsyncOptions<Options> extends Pick<ModuleMetadata, 'imports'> {
  readonly inject?: NonNullable<Extract<Provider, { useFactory: unknown }>['inject']>
  // biome-ignore lint/suspicious/noExplicitAny: what is injected is known to its writer only
  readonly useFactory: (...injected: any[]) => Options | Promise<Options>
}

/**
 * The provider of the options that a factory creates, and its imports.
 * @param called the `forRootAsync` in words, for messages
 * @throws InvalidOptions for invalid async options; the provider throws it if the factory returns nothing
 */
export function optionsFrom<Options>(called: string, provide: symbol, given: AsyncOptions<Options>) {
  const { imports = [], inject = [], useFactory } = checkOptions(called, asyncOptions, given)
  const made = async (...injected: unknown[]) => {
    const options = await useFactory(...injected)
    if (options !== undefined) return options
    throw new InvalidOptions(called, [
      'expected useFactory to return the options, got undefined: is a `return` missing?',
    ])
  }
  return { imports, provider: { provide, inject, useFactory: made } }
}

const asyncOptions = t.object({
  imports: t.anything<NonNullable<AsyncOptions<unknown>['imports']>>(),
  inject: t.anything<NonNullable<AsyncOptions<unknown>['inject']>>(),
  useFactory: t.aFunction<AsyncOptions<unknown>['useFactory']>('a function that returns the options'),
})

/** The options of `LocksModule.forRootAsync`. */
export type LocksAsyncOptions = AsyncOptions<LocksOptions>

/** @throws InvalidSchedulerLocks */
export function checkedLocksOptions(given: LocksOptions | undefined): LocksOptions {
  if (given === undefined) return {}
  if (typeof given !== 'object' || given === null)
    throw new InvalidSchedulerLocks([`locks: expected an object, got ${String(given)}`])
  const problems = unknownOptions(Object.keys(given.defaults ?? {}), ['lockAtMostFor', 'lockAtLeastFor', 'watchdog'])
  if (problems.length > 0) throw new InvalidSchedulerLocks(problems.map((problem) => `locks.defaults: ${problem}`))
  return given
}
