import type { DiscoveryService } from '@nestjs/core'
import { shown } from '../options/index.js'
import {
  type AnyCallback,
  type AnyHandler,
  CALLBACKS_NEED,
  callbackMethods,
  HANDLERS_NEED,
  handledPhases,
  standsFor,
} from '../phases/index.js'
import { InvalidHandlers } from './errors.js'

/** A method of one of the app's providers that handles a phase. */
export interface HandlerMethod {
  readonly lifecycle: string
  readonly phase: string
  /** `Class.method`, for people. */
  readonly where: string
  /** The module that provides the class. */
  readonly module: string
  readonly call: AnyHandler
}

/** A method of one of the app's providers that is a callback. */
export interface CallbackMethod extends Pick<HandlerMethod, 'lifecycle' | 'where' | 'module'> {
  readonly callback: string
  readonly call: AnyCallback
}

/** The methods of the app's providers that serve its lifecycles. */
export interface Methods {
  readonly handlers: readonly HandlerMethod[]
  readonly callbacks: readonly CallbackMethod[]
}

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number]

/**
 * The methods with `@lifecycle.OnPhase(...)` and `@lifecycle.Callback(...)` of all providers and controllers. If a test replaces a provider
 * by a plain object, the object handles the phases of the replaced class.
 * @throws InvalidHandlers for a class that Nest instantiates per request or per use: there is no single instance to call
 */
export function handlerMethods(discovery: DiscoveryService): Methods {
  const handlers = new Map<object, HandlerMethod[]>()
  const callbacks = new Map<object, CallbackMethod[]>()
  const problems: string[] = []
  for (const wrapper of [...discovery.getProviders(), ...discovery.getControllers()]) {
    if (wrapper.isAlias) continue
    const phases = declaredBy(wrapper, handledPhases, ({ phase }) => phase)
    const called = declaredBy(wrapper, callbackMethods, ({ callback }) => callback)
    if (phases.length + called.length === 0) continue
    if (!wrapper.isDependencyTreeStatic() || wrapper.isTransient) {
      const does = phases.length > 0 ? 'handles phases' : 'has callbacks'
      problems.push(
        `${className(wrapper)} ${does} but is not a singleton (it, or something it injects, has request or transient scope); steps have no request: use the default scope`,
      )
      continue
    }
    const { instance } = wrapper
    const missing = [...phases, ...called].filter(({ method }) => typeof Object(instance)[method] !== 'function')
    if (missing.length > 0) {
      problems.push(...missing.map((one) => whyMissing(wrapper, one)))
      continue
    }
    HANDLERS_NEED.meet(instance)
    CALLBACKS_NEED.meet(instance)
    handlers.set(
      instance,
      phases.map(({ lifecycle, phase, method }) => ({
        ...{ lifecycle, phase, ...placeOf(wrapper, method) },
        call: standsFor<AnyHandler>(
          (doc, step) => instance[method](doc, step),
          () => instance[method],
        ),
      })),
    )
    callbacks.set(
      instance,
      called.map(({ lifecycle, callback, method }) => ({
        ...{ lifecycle, callback, ...placeOf(wrapper, method) },
        call: (event, call) => instance[method](event, call),
      })),
    )
  }
  if (problems.length > 0) throw new InvalidHandlers(problems)
  return { handlers: [...handlers.values()].flat(), callbacks: [...callbacks.values()].flat() }
}

function declaredBy<T extends { readonly lifecycle: string; readonly method: string | symbol }>(
  wrapper: Wrapper,
  declaredIn: (instance: object) => readonly T[],
  nameOf: (one: T) => string,
): T[] {
  const candidates = [wrapper.instance, prototypeOf(wrapper.metatype), prototypeOf(wrapper.token)]
  const declared = candidates
    .filter((candidate) => typeof candidate === 'object' && candidate !== null)
    .map((candidate) => declaredIn(candidate))
    .find((methods) => methods.length > 0)
  const keyOf = (one: T) => `${one.lifecycle} ${nameOf(one)} ${String(one.method)}`
  // A subclass that overrides a method and decorates it again declares the same handler twice.
  return [...new Map(declared?.map((one) => [keyOf(one), one])).values()]
}

/** The explanation for a provider that a test has replaced by an object with fewer methods, or for a property that isn't set. */
function whyMissing(wrapper: Wrapper, { lifecycle, method, ...of }: MethodOf): string {
  const what = 'phase' in of ? `handles '${of.phase}'` : `is the callback '${of.callback}'`
  const got = shown(Object(wrapper.instance)[method])
  return `${placeOf(wrapper, method).where} ${what} of lifecycle '${lifecycle}': expected a method, got ${got}; an object that replaces the provider needs all of its methods`
}

type MethodOf = { readonly lifecycle: string; readonly method: string | symbol } & (
  | { readonly phase: string }
  | { readonly callback: string }
)

const prototypeOf = (value: unknown): unknown => (typeof value === 'function' ? value.prototype : undefined)

const placeOf = (wrapper: Wrapper, method: string | symbol) => ({
  where: `${className(wrapper)}.${String(method)}`,
  module: wrapper.host?.name ?? 'its module',
})

function className(wrapper: Wrapper): string {
  const { token, instance } = wrapper
  return typeof token === 'function' ? token.name : (instance?.constructor?.name ?? String(token))
}
