import { note, noted } from './noted.js'

/** A requirement of methods with a Phaselock decorator on their Nest app: on their own they do nothing. */
export class Need {
  private readonly met = new WeakSet<object>()
  /** Prototypes of the classes that a warning was issued for. */
  private readonly warned = new WeakSet<object>()

  constructor(
    readonly about: {
      /** The decorator: `@Scheduled`. */
      readonly decorator: string
      /** The module that an app with such methods imports, and its package. */
      readonly module: string
      /** The consequence without it: `never runs`. */
      readonly without: string
      /** A provider of the module; without it, a missing module can't be detected before instances are created. */
      readonly token?: symbol
    },
  ) {}

  /** Records that the app meets the need of the instance, or leaves its methods to other processes. */
  meet(instance: unknown): void {
    // A test may replace a class with anything, even nothing.
    if (typeof instance === 'object' && instance !== null) this.met.add(instance)
  }

  isMet(instance: object): boolean {
    return this.met.has(instance)
  }

  /** Returns true for the first instance of its class that it is called for. */
  isFirst(instance: object): boolean {
    const type = Object.getPrototypeOf(instance) as object
    if (this.warned.has(type)) return false
    this.warned.add(type)
    return true
  }
}

/** A method of an instance with an unmet need. */
export interface UnmetNeed {
  /** `Class.method`. */
  readonly where: string
  readonly need: Need
}

const NEEDS = Symbol.for('phaselock:needs')
const HOOK = 'onApplicationBootstrap'

type Declared = { readonly method: string; readonly need: Need }
type Hook = (this: object, ...args: unknown[]) => unknown
type Decorated = { readonly [HOOK]?: Hook }

/**
 * Notes the need of a decorated method. In an app that doesn't meet it, perhaps no code of Phaselock runs, and an error would break tests
 * that build only a part of the app. So the class gets (or extends its) `onApplicationBootstrap`, which warns once per class. Nest calls it
 * for each instance of an app that starts, once all modules are initialized. Lazily loaded modules have no hooks.
 */
export function needsModule(proto: object, method: string | symbol, need: Need): void {
  if (typeof proto === 'function') return
  if (!Object.hasOwn(proto, NEEDS)) extendHook(proto)
  note<Declared>(proto, NEEDS, { method: String(method), need })
}

/** The methods of an instance whose needs aren't met yet. */
export function needed(instance: unknown): UnmetNeed[] {
  if (typeof instance !== 'object' || instance === null) return []
  return noted<Declared>(instance, NEEDS)
    .filter(({ need }) => !need.isMet(instance))
    .map(({ method, need }) => ({ where: `${instance.constructor?.name ?? 'a class'}.${method}`, need }))
}

function extendHook(proto: object): void {
  const own = Object.getOwnPropertyDescriptor(proto, HOOK)?.value as Hook | undefined
  const value: Hook = function (...args) {
    warnOnce(this)
    const next = own ?? (Object.getPrototypeOf(proto) as Decorated)[HOOK]
    return next?.apply(this, args)
  }
  Object.defineProperty(proto, HOOK, { value, configurable: true, writable: true })
}

let warn = (message: string): void => process.emitWarning(message, 'PhaselockWarning')

/** Sets the receiver of warnings, instead of Node's own. */
export function warnBy(tell: (message: string) => void): void {
  warn = tell
}

function warnOnce(instance: object): void {
  for (const [need, methods] of Map.groupBy(needed(instance), (one) => one.need)) {
    if (!need.isFirst(instance)) continue
    const { decorator, module, without } = need.about
    const names = [...new Set(methods.map(({ where }) => where))].join(', ')
    warn(`${names}: nothing in this app looks for ${decorator}, so it ${without}; import ${module} in its root module`)
  }
}
