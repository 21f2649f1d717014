import { Need, needsModule, note } from '../../decorated/index.js'
import { InvalidSchedulerLocks, LocksNotConfigured } from '../errors.js'
import { LOCKED, type LockDeclaration, type SchedulerLockOptions, scopeOf } from './lock-scope.js'

/** A method that can be skipped: it promises nothing, or a value that may be undefined. */
type Skippable<M> = M extends (...args: never[]) => infer R
  ? [R] extends [void | Promise<void>]
    ? unknown
    : R extends Promise<infer T>
      ? undefined extends T
        ? unknown
        : {
            'a method with @SchedulerLock is skipped when the lock is held': 'let it return a Promise<... | undefined>'
          }
      : { 'a method with @SchedulerLock waits for its lock': 'let it return a Promise' }
  : unknown

class LocksNeed extends Need {
  /** Also true for an instance that Nest created later: its class is bound. */
  override isMet(instance: object): boolean {
    return scopeOf(instance) !== undefined
  }
}

const LOCKS_NEED = new LocksNeed({
  decorator: '@SchedulerLock',
  module: 'LocksModule.forRoot() (phaselock/locks/nest) or PhaselockModule.forRoot() (phaselock/nest)',
  without: 'fails when it is called',
})

/**
 * Runs the method only while this process holds the lock; otherwise the call is skipped and resolves to undefined. This applies on every call
 * path (a cron, injected, `this.method()`), since the method itself is replaced. It works in any order with `@Cron` and similar decorators:
 * the metadata that they have set on the method is kept.
 * Errors of a call: LockProviderUnavailable if the locks' server is down (the method isn't run), LocksNotConfigured.
 * Invalid options are reported when the app starts; an app without locks is warned.
 */
export function SchedulerLock(options: SchedulerLockOptions) {
  return <M>(target: object, key: string | symbol, descriptor: TypedPropertyDescriptor<M> & Skippable<M>): void => {
    const owner = typeof target === 'function' ? target : target.constructor
    const where = `${owner.name}.${String(key)}`
    const method: unknown = descriptor?.value
    if (typeof method !== 'function')
      throw new InvalidSchedulerLocks([`${where}: expected a method under @SchedulerLock`])
    const declaration: LockDeclaration = { where, options }
    note(target, LOCKED, declaration)
    needsModule(target, key, LOCKS_NEED)
    descriptor.value = locked(method as Method, declaration) as M
  }
}

type Method = (this: unknown, ...args: unknown[]) => unknown

function locked(method: Method, declaration: LockDeclaration): Method {
  async function withLock(this: unknown, ...args: unknown[]): Promise<unknown> {
    const scope = scopeOf(this)
    if (!scope) throw new LocksNotConfigured(declaration.where)
    return await scope.run(declaration, () => method.apply(this, args))
  }
  Object.defineProperty(withLock, 'name', { value: method.name, configurable: true })
  Object.defineProperty(withLock, 'length', { value: method.length, configurable: true })
  copyMetadata(method, withLock)
  return withLock
}

/** Copies the metadata of decorators below this one (such as `@Cron`), because it is read from the method that is now in the class. */
function copyMetadata(from: object, to: object): void {
  const reflect = Reflect as typeof Reflect & {
    getOwnMetadataKeys?(target: object): unknown[]
    getOwnMetadata?(key: unknown, target: object): unknown
    defineMetadata?(key: unknown, value: unknown, target: object): void
  }
  for (const key of reflect.getOwnMetadataKeys?.(from) ?? [])
    reflect.defineMetadata?.(key, reflect.getOwnMetadata?.(key, from), to)
}
