import type { DiscoveryService } from '@nestjs/core'
import { type LockDb, LockExecutor, type LockObserver, type LockProvider, openLockProvider } from '../../locks/index.js'
import { LockBinder } from './lock-binder.js'
import { LockScope } from './lock-scope.js'
import { checkedLocksOptions, type LocksOptions } from './options.js'

/** Where lock events are logged; any of Phaselock's loggers fits. */
export interface LocksLog {
  debug(message: string, fields?: object): void
  warn(message: string, fields?: object): void
}

/** An app's locks, open, with its classes bound to them. */
export interface OpenLocks {
  readonly executor: LockExecutor
  readonly binder: LockBinder
  /** Closes what was opened here. */
  close(): Promise<void>
}

/**
 * @param fallback the app's own database, for locks that no option places elsewhere
 * @throws InvalidSchedulerLocks, InvalidLockProvider
 */
export async function openLocks(
  given: LocksOptions | undefined,
  discovery: DiscoveryService,
  log: LocksLog,
  more: { readonly fallback?: LockDb; readonly name?: string | undefined } = {},
): Promise<OpenLocks> {
  const { provider: asked, defaults = {}, settings, observer, ...options } = checkedLocksOptions(given)
  const opened = isProvider(asked)
    ? undefined
    : await openLockProvider({ ...options, provider: asked, name: options.name ?? more.name }, more.fallback)
  const provider = opened ?? (asked as LockProvider)
  const executor = new LockExecutor(provider, { observer: [logging(log), ...(observer ? [observer] : [])] })
  const skipped = (where: string, lock: string, heldBy: string | undefined) =>
    log.debug(`${where} is skipped: its lock is held`, { lock, heldBy })
  const scope = new LockScope(executor, defaults, settings ?? options.env ?? process.env, skipped)
  const binder = new LockBinder(discovery, scope)
  const close = async () => await opened?.close()
  try {
    binder.bindClasses()
  } catch (error) {
    await close()
    throw error
  }
  return { executor, binder, close }
}

const isProvider = (value: LocksOptions['provider']): value is LockProvider =>
  typeof value === 'object' && value !== null && typeof value.lock === 'function'

const logging = (log: LocksLog): LockObserver => ({
  lost: (event) => log.warn('a lock ended before its task: it expired, was freed, or could not be extended', event),
  failed({ name, action, error }) {
    const ends = action === 'extend' ? 'extended; it is tried again' : 'unlocked; it ends by itself'
    log.warn(`a lock could not be ${ends}`, { lock: name, cause: String(error) })
  },
})
