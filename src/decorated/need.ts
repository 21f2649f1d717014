import { note, noted } from './noted.js'

/** What methods with a Phaselock decorator need in their Nest app: on their own they do nothing. */
export class Need {
  private readonly met = new WeakSet<object>()
  /** Prototypes of the classes that were warned of. */
  private readonly warned = new WeakSet<object>()

  constructor(
    readonly about: {
      /** `@Scheduled`. */
      readonly decorator: string
      /** What an app that has them imports, and from where. */
      readonly module: string
      /** What happens without it: `never runs`. */
      readonly without: string
      /** A provider that the module brings; without one, a missing module can't be detected before instances are made. */
      readonly token?: symbol
    },
  ) {}

  /** Records that the app has what the instance needs, or leaves its methods to other processes. */
  meet(instance: unknown): void {
    // A test may replace a class with anything, even nothing.
    if (typeof instance === 'object' && instance !== null) this.met.add(instance)
  }

  isMet(instance: object): boolean {
    return this.met.has(instance)
  }

  /** Whether it is the first instance of its class that is asked about. */
  isFirst(instance: object): boolean {
    const type = Object.getPrototypeOf(instance) as object
    if (this.warned.has(type)) return false
    this.warned.add(type)
    return true
  }
}

/** A method of an instance that needs something. */
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
 * Notes what a decorated method needs. In an app that lacks it perhaps no code of Phaselock runs, and an error would break tests that build
 * only a part of the app. So the class gets (or extends its) `onApplicationBootstrap`, which Nest calls for each instance of an app that
 * starts, once all modules are initialized, and which warns once per class. Lazily loaded modules have no hooks.
 */
export function needsModule(proto: object, method: string | symbol, need: Need): void {
  if (typeof proto === 'function') return
  if (!Object.hasOwn(proto, NEEDS)) extendHook(proto)
  note<Declared>(proto, NEEDS, { method: String(method), need })
}

/** The methods of an instance that need something, and don't have it yet. */
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

/** Sets where warnings go, instead of to Node's own. */
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
