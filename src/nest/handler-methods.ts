import type { DiscoveryService } from '@nestjs/core'
import { type AnyHandler, HANDLERS_NEED, handledPhases, standsFor } from '../phases/index.js'
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

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number]

/**
 * The methods with `@lifecycle.OnPhase(...)` of all providers and controllers. A plain object with which a test replaces a provider handles
 * what the replaced class would.
 * @throws InvalidHandlers for a class that Nest instantiates per request or per use: there is no single instance to call
 */
export function handlerMethods(discovery: DiscoveryService): HandlerMethod[] {
  const found = new Map<object, HandlerMethod[]>()
  const problems: string[] = []
  for (const wrapper of [...discovery.getProviders(), ...discovery.getControllers()]) {
    if (wrapper.isAlias) continue
    const declared = declaredPhases(wrapper)
    if (declared.length === 0) continue
    if (!wrapper.isDependencyTreeStatic() || wrapper.isTransient) {
      problems.push(
        `${className(wrapper)} handles phases but is not a singleton (it, or something it injects, has request or transient scope); steps have no request: use the default scope`,
      )
      continue
    }
    HANDLERS_NEED.meet(wrapper.instance)
    const methods = declared.map((one) => methodOf(wrapper, one))
    found.set(wrapper.instance, methods)
  }
  if (problems.length > 0) throw new InvalidHandlers(problems)
  return [...found.values()].flat()
}

type Declared = ReturnType<typeof handledPhases>[number]

function declaredPhases(wrapper: Wrapper): Declared[] {
  const candidates = [wrapper.instance, prototypeOf(wrapper.metatype), prototypeOf(wrapper.token)]
  const declared = candidates
    .filter((candidate) => typeof candidate === 'object' && candidate !== null)
    .map((candidate) => handledPhases(candidate))
    .find((phases) => phases.length > 0)
  const keyOf = ({ lifecycle, phase, method }: Declared) => `${lifecycle} ${phase} ${String(method)}`
  // A subclass that overrides a method and decorates it again declares the same thing twice.
  return [...new Map(declared?.map((one) => [keyOf(one), one])).values()]
}

const prototypeOf = (value: unknown): unknown => (typeof value === 'function' ? value.prototype : undefined)

function methodOf(wrapper: Wrapper, { lifecycle, phase, method }: Declared): HandlerMethod {
  const { instance } = wrapper
  return {
    lifecycle,
    phase,
    where: `${className(wrapper)}.${String(method)}`,
    module: wrapper.host?.name ?? 'its module',
    call: standsFor<AnyHandler>(
      (doc, step) => instance[method](doc, step),
      () => instance[method],
    ),
  }
}

function className(wrapper: Wrapper): string {
  const { token, instance } = wrapper
  return typeof token === 'function' ? token.name : (instance?.constructor?.name ?? String(token))
}
