import { checkedExecution, type ExecutionConfig, type LockDuration, type LockExecutor } from '../../locks/index.js'
import { InvalidSchedulerLocks } from '../errors.js'

/** The options of `@SchedulerLock`. Strings may contain `${KEY}` or `${KEY:otherwise}`: values of the app's settings. */
export interface SchedulerLockOptions {
  /** The lock's name: two methods, or two replicas, with the same name exclude each other. */
  readonly name: string
  /** Default: the one of `forRoot`; one of the two is required. */
  readonly lockAtMostFor?: LockDuration | undefined
  /** Default: the one of `forRoot`, else 0. */
  readonly lockAtLeastFor?: LockDuration | undefined
  /** Extends the lock while the method runs. Default: the one of `forRoot`, else false. */
  readonly watchdog?: boolean | LockDuration | undefined
  /** The time that a call waits for the lock. Default 0: it is skipped immediately. */
  readonly waitFor?: LockDuration | undefined
}

/** One decorated method. */
export interface LockDeclaration {
  /** `Class.method`, for messages. */
  readonly where: string
  readonly options: SchedulerLockOptions
}

/** The declarations noted on a prototype or, for static methods, on the class. */
export const LOCKED = Symbol.for('phaselock:locked')

/** The defaults of `forRoot` for all methods with `@SchedulerLock`. */
export type LockDefaults = Pick<SchedulerLockOptions, 'lockAtMostFor' | 'lockAtLeastFor' | 'watchdog'>

/** The source of `${KEY}` in a lock's options. */
export type LockSettings = Readonly<Record<string, unknown>> | ((key: string) => unknown)

/** The locks of one app, which run its decorated methods. */
export class LockScope {
  private readonly resolved = new Map<LockDeclaration, ExecutionConfig>()

  constructor(
    readonly executor: LockExecutor,
    private readonly defaults: LockDefaults,
    private readonly settings: LockSettings,
    private readonly skipped: (where: string, lock: string, heldBy: string | undefined) => void,
  ) {}

  /** @returns the method's return value; undefined if the lock was held */
  async run<R>(declaration: LockDeclaration, method: () => R | Promise<R>): Promise<R | undefined> {
    const config = this.configOf(declaration)
    const result = await this.executor.executeWithLock(() => method(), config)
    if (result.executed) return result.result
    this.skipped(declaration.where, config.name, result.heldBy)
    return undefined
  }

  /** @throws InvalidLockConfig, InvalidSchedulerLocks */
  configOf(declaration: LockDeclaration): ExecutionConfig {
    const known = this.resolved.get(declaration)
    if (known) return known
    const config = this.resolve(declaration)
    checkedExecution(config)
    this.resolved.set(declaration, config)
    return config
  }

  private resolve({ where, options }: LockDeclaration): ExecutionConfig {
    const { name, lockAtMostFor, lockAtLeastFor, watchdog, ...rest } = options ?? {}
    const filled = <T>(value: T): T => (typeof value === 'string' ? (this.withSettings(where, value) as T) : value)
    return {
      ...rest,
      name: filled(name),
      lockAtMostFor: filled(lockAtMostFor ?? this.defaults.lockAtMostFor) as LockDuration,
      lockAtLeastFor: filled(lockAtLeastFor ?? this.defaults.lockAtLeastFor),
      watchdog: filled(watchdog ?? this.defaults.watchdog),
    }
  }

  private withSettings(where: string, text: string): string {
    return text.replaceAll(/\$\{([^}:]+)(?::([^}]*))?\}/g, (_, key: string, otherwise: string | undefined) => {
      const value = typeof this.settings === 'function' ? this.settings(key) : this.settings[key]
      if (value !== undefined && value !== null && value !== '') return String(value)
      if (otherwise !== undefined) return otherwise
      throw new InvalidSchedulerLocks([
        `${where}: expected a setting '${key}' for '${text}', but there is none; set it, or write \${${key}:otherwise}`,
      ])
    })
  }
}

/**
 * Scopes by instance, and by class for instances that didn't exist when the app started (request-scoped, or created without Nest). Several apps
 * of this process may share a class: the last one that is still open counts.
 */
const scopes = new WeakMap<object, LockScope[]>()

export function bindScope(target: object, scope: LockScope): void {
  const bound = scopes.get(target)
  if (bound?.includes(scope)) return
  scopes.set(target, [...(bound ?? []), scope])
}

/** Called once the app is closed, because its locks are closed then. */
export function unbindScope(target: object, scope: LockScope): void {
  scopes.set(
    target,
    (scopes.get(target) ?? []).filter((one) => one !== scope),
  )
}

/** The locks of the app that this object belongs to. */
export function scopeOf(target: unknown): LockScope | undefined {
  if ((typeof target !== 'object' && typeof target !== 'function') || target === null) return undefined
  let scope = scopes.get(target)?.at(-1)
  let type: unknown = typeof target === 'function' ? target : target.constructor
  for (; !scope && typeof type === 'function'; type = Object.getPrototypeOf(type)) scope = scopes.get(type)?.at(-1)
  return scope
}
