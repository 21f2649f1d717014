import type { DiscoveryService } from '@nestjs/core'
import {
  type AnyCallback,
  type AnyHandler,
  BoundLifecycle,
  type LifecycleModel,
  type RunnableLifecycle,
  standsFor,
  Unavailable,
  workingPhases,
} from '../phases/index.js'
import { InvalidHandlers } from './errors.js'
import type { CallbackMethod, HandlerMethod, Methods } from './handler-methods.js'

/** A lifecycle passed to `forFeature`: a definition, whose handlers are methods of the app's providers, or one with handlers. */
export interface FeatureLifecycle {
  /** The lifecycle's name, unique in the app; it is injected by this name. */
  readonly name: string
  /** The model created by `define`: `lifecycle.model`. */
  readonly model: LifecycleModel
}

/** The lifecycles of one `forFeature`; a provider of its module, so that the catalog finds all of them. @internal */
export class FeatureLifecycles {
  constructor(
    readonly lifecycles: readonly FeatureLifecycle[],
    /** Undefined: the module's own. */
    readonly database: string | undefined,
  ) {}
}

interface Entry {
  readonly model: LifecycleModel
  /** The lifecycle as it was given, if it came with its handlers. */
  readonly given?: RunnableLifecycle
  /** The app's own lifecycle. */
  readonly runnable: RunnableLifecycle
  /** The name of the database of its documents; undefined: the module's own. */
  readonly database: string | undefined
  /** The methods by phase; undefined: the lifecycle came with its handlers. */
  readonly methods: Map<string, HandlerMethod> | undefined
  /** The callbacks by name. */
  readonly callbacks: Map<string, CallbackMethod>
}

const DEFAULT_LOCK_TIMEOUT_MS = 30_000

/**
 * All lifecycles of an app. It is complete before the first provider is created (modules are known then, instances aren't), so a
 * bound lifecycle can be injected into the very class that handles its phases. The methods are found when the app starts.
 */
export class LifecycleCatalog {
  private readonly entries = new Map<string, Entry>()

  /** @throws InvalidHandlers for two different lifecycles of one name, or for a value that isn't a lifecycle */
  constructor(discovery: DiscoveryService, plain: readonly RunnableLifecycle[]) {
    const features = discovery
      .getProviders()
      .filter((wrapper) => wrapper.token === FeatureLifecycles)
      .map((wrapper) => wrapper.instance as FeatureLifecycles)
    const all = [new FeatureLifecycles(plain as (RunnableLifecycle & FeatureLifecycle)[], undefined), ...features]
    const added = all.flatMap(({ lifecycles, database }) => lifecycles.map((one) => this.add(one, database)))
    const problems = added.filter((problem) => problem !== undefined)
    if (problems.length > 0) throw new InvalidHandlers(problems)
  }

  /** The lifecycles by the database of their documents; undefined: the module's own. */
  get byDatabase(): Map<string | undefined, RunnableLifecycle[]> {
    const grouped = Map.groupBy(this.entries.values(), (entry) => entry.database)
    return new Map([...grouped].map(([database, entries]) => [database, entries.map((entry) => entry.runnable)]))
  }

  /** The shortest lockTimeout of all lifecycles. */
  get lockTimeoutMs(): number {
    const all = [...this.entries.values()].map((entry) => entry.model.settings.lockTimeoutMs)
    return all.length > 0 ? Math.min(...all) : DEFAULT_LOCK_TIMEOUT_MS
  }

  /** Returns the one bound lifecycle of this name; undefined: the app was created without it (a module that is loaded lazily). */
  bound(lifecycle: FeatureLifecycle): RunnableLifecycle | undefined {
    return this.entries.get(lifecycle.name)?.runnable
  }

  /**
   * Connects the working phases and the callbacks to their methods.
   * @param ownersOnly this process doesn't work on documents: a lifecycle may be without any handler
   * @throws InvalidHandlers listing every phase and callback with no method or with two, and every method that no lifecycle needs
   */
  connect({ handlers, callbacks }: Methods, { ownersOnly }: { ownersOnly: boolean }): void {
    const taking = [...handlers.map((method) => this.take(method)), ...callbacks.map((one) => this.takeCallback(one))]
    const problems = taking.filter((problem) => problem !== undefined)
    for (const { model, methods: taken, callbacks: called } of this.entries.values()) {
      if (!taken || (ownersOnly && taken.size === 0)) continue
      for (const phase of workingPhases(model).filter((name) => !taken.has(name))) {
        problems.push(
          `lifecycle '${model.name}': working phase '${phase}' has no handler; add a method with @${camel(model.name)}.OnPhase('${phase}') to a provider, and that provider to a module of this app`,
        )
      }
      for (const name of (model.settings.callbacks ?? []).filter((one) => !called.has(one))) {
        problems.push(
          `lifecycle '${model.name}': callback '${name}' is missing; add a method with @${camel(model.name)}.Callback('${name}') to a provider, and that provider to a module of this app`,
        )
      }
    }
    if (problems.length > 0) throw new InvalidHandlers(problems)
  }

  private add(lifecycle: FeatureLifecycle, database: string | undefined): string | undefined {
    const model = lifecycle?.model
    if (!model?.phases) {
      return `expected a lifecycle, got ${String(lifecycle)}; where two files import each other, it isn't there yet when the module is declared: define it in a file of its own`
    }
    const there = this.entries.get(model.name)
    if (there && there.model !== model)
      return `two different lifecycles are called '${model.name}'; rename one, or import it from one place`
    if (there && there.database !== database) {
      const named = [there.database, database].map((name) => (name === undefined ? "the module's own" : `'${name}'`))
      return `lifecycle '${model.name}' is registered for two databases (${named.join(' and ')}); a lifecycle has one: define another for the second`
    }
    if (!isRunnable(lifecycle)) this.entries.set(model.name, there ?? entryOf(model, database))
    else if (!there?.methods && there && there.given !== lifecycle)
      return `lifecycle '${model.name}' was given handlers twice (two calls of handle); keep one`
    else if (there?.given !== lifecycle) {
      // Created when its file was imported, so another app of this process may have it too.
      const runnable = lifecycle instanceof BoundLifecycle ? lifecycle.forApp() : lifecycle
      const more = { methods: undefined, callbacks: new Map() }
      this.entries.set(model.name, { model, given: lifecycle, runnable, database, ...more })
    }
    return undefined
  }

  private take(method: HandlerMethod): string | undefined {
    const entry = this.entries.get(method.lifecycle)
    if (!entry) {
      return `${method.where} handles '${method.phase}' of lifecycle '${method.lifecycle}', which this app doesn't have; add PhaselockModule.forFeature([${camel(method.lifecycle)}]) to the imports of ${method.module}`
    }
    if (!entry.methods) {
      return `${method.where} handles '${method.phase}' of lifecycle '${method.lifecycle}', which came with its handlers; remove the method, or register the definition itself instead of what handle() returned`
    }
    const other = entry.methods.get(method.phase)
    if (other) {
      return `lifecycle '${method.lifecycle}': phase '${method.phase}' has two handlers, ${other.where} (${other.module}) and ${method.where} (${method.module}); keep one, and list its class as a provider of one module only`
    }
    entry.methods.set(method.phase, method)
    return undefined
  }

  private takeCallback(method: CallbackMethod): string | undefined {
    const { lifecycle, callback, where, module } = method
    const entry = this.entries.get(lifecycle)
    const what = `${where} is the callback '${callback}' of lifecycle '${lifecycle}'`
    if (!entry)
      return `${what}, which this app doesn't have; add PhaselockModule.forFeature([${camel(lifecycle)}]) to the imports of ${module}`
    if (!entry.methods)
      return `${what}, which came with its handlers; remove the method, or register the definition itself instead of what handle() returned`
    const other = entry.callbacks.get(callback)
    if (other)
      return `lifecycle '${lifecycle}': callback '${callback}' is there twice, ${other.where} (${other.module}) and ${where} (${module}); keep one, and list its class as a provider of one module only`
    entry.callbacks.set(callback, method)
    return undefined
  }
}

function entryOf(model: LifecycleModel, database: string | undefined): Entry {
  const methods = new Map<string, HandlerMethod>()
  const handlerOf = (phase: string) => {
    const call: AnyHandler = (doc, step) => {
      const method = methods.get(phase)
      if (method) return method.call(doc, step)
      throw new Unavailable(
        `'${phase}' of lifecycle '${model.name}' has no handler in this process; its methods are found by app.init() (which create... and listen() call), and an app with tick: false may have none`,
      )
    }
    return standsFor(call, () => methods.get(phase)?.call)
  }
  const handlers = Object.fromEntries(workingPhases(model).map((phase) => [phase, handlerOf(phase)]))
  const callbacks = new Map<string, CallbackMethod>()
  const callbackOf =
    (name: string): AnyCallback =>
    (event, call) => {
      const method = callbacks.get(name)
      if (method) return method.call(event, call)
      throw new Unavailable(`callback '${name}' of lifecycle '${model.name}' is missing in this process`)
    }
  const called = Object.fromEntries((model.settings.callbacks ?? []).map((name) => [name, callbackOf(name)]))
  return { model, database, methods, callbacks, runnable: new BoundLifecycle(model, handlers, called) }
}

const isRunnable = (lifecycle: FeatureLifecycle): lifecycle is FeatureLifecycle & RunnableLifecycle =>
  'handlers' in lifecycle

/** A lifecycle's name as a variable name: 'api-gateway' -> 'apiGateway'. For advice only. */
const camel = (name: string): string =>
  name.replace(/[^A-Za-z0-9]+(.)?/g, (_all, next?: string) => next?.toUpperCase() ?? '')
