import { statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { DatabaseConnection } from '../database/index.js'
import type { LifecycleModel, RunnableLifecycle } from '../phases/index.js'
import { CliError, EXIT, InvalidLifecyclesModule } from './errors.js'
import { isKnown } from './report-error.js'

const TO_RUN =
  'a module whose default export is an array of lifecycles (lifecycle.handle({...})), or a function of { db, client } that returns one'
const TO_SEE =
  'a module that exports lifecycles, an array of them, a function of { db, client } that returns one, or a Nest module'

type Context = Pick<DatabaseConnection, 'db' | 'client'>

/** Creates the lifecycles for a database. Called again if they need shorter timeouts than the first connection has. */
export type LifecyclesFactory<Lifecycle> = (context: Context) => Promise<readonly Lifecycle[]>

/**
 * The lifecycles that a module exports to be run.
 * @throws InvalidLifecyclesModule if it can't be found or exports something else; LifecyclesModuleFailed if the module
 *   itself throws, unless that error is one of Phaselock's own
 */
export async function runnableLifecycles(module: string, cwd: string): Promise<LifecyclesFactory<RunnableLifecycle>> {
  const { default: exported } = await load(module, cwd, TO_RUN)
  return async (context) => {
    const lifecycles = typeof exported === 'function' ? await theirs(module, () => exported(context)) : exported
    requireRunnable(module, lifecycles)
    return lifecycles
  }
}

/** A lifecycle without its handlers. */
export interface Described {
  readonly model: LifecycleModel
}

/**
 * All lifecycles that a module exports in any way, with or without handlers: by name, in arrays, by a default function of the database,
 * and those that Nest modules register (`forFeature`, `forRoot`). No Nest app is started.
 * @throws as {@link runnableLifecycles}
 */
export async function describedLifecycles(module: string, cwd: string): Promise<LifecyclesFactory<Described>> {
  const loaded = await load(module, cwd, TO_SEE)
  return async (context) => {
    const values = Object.values(loaded).map((value) =>
      typeof value === 'function' && value === loaded['default'] && !isNestModule(value)
        ? theirs(module, () => value(context))
        : value,
    )
    const found = new Map<LifecycleModel, Described>()
    for (const value of (await Promise.all(values)).flat()) {
      const here = isDescribed(value) ? [value] : await registeredIn(value)
      for (const one of here) found.set(one.model, one)
    }
    const lifecycles = [...found.values()]
    if (lifecycles.length === 0)
      throw new InvalidLifecyclesModule(module, TO_SEE, `it exports ${Object.keys(loaded).join(', ') || 'nothing'}`)
    requireDistinct(module, TO_SEE, lifecycles)
    return lifecycles
  }
}

async function load(module: string, cwd: string, expected: string): Promise<Record<string, unknown>> {
  const url = locate(module, cwd, expected)
  return await theirs(module, () => import(url))
}

/** Runs the user's code: the module, or the function that it exports, may throw. Its own error is the cause, with its stack. */
async function theirs<T>(module: string, run: () => T | Promise<T>): Promise<T> {
  try {
    return await run()
  } catch (cause) {
    if (isKnown(cause)) throw cause
    const where = cause instanceof SyntaxError ? ` (node --check ${module} shows where)` : ''
    const thrown = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause)
    const message = `--lifecycles ${module}: expected a module that can be loaded, but it throws${where}:\n${thrown}`
    throw new CliError('LifecyclesModuleFailed', EXIT.failure, message, { cause })
  }
}

function locate(module: string, cwd: string, expected: string): string {
  const file = resolve(cwd, module)
  const found = statSync(file, { throwIfNoEntry: false })
  if (found && !found.isDirectory()) return pathToFileURL(file).href
  if (/^(\.|\/)/.test(module))
    throw new InvalidLifecyclesModule(
      module,
      expected,
      found ? `${file} is a folder; name a file in it` : `there is no file ${file}`,
    )
  try {
    return pathToFileURL(createRequire(resolve(cwd, 'package.json')).resolve(module)).href
  } catch (cause) {
    const problem = `there is neither a file ${file} nor a package of that name`
    throw new InvalidLifecyclesModule(module, expected, problem, { cause })
  }
}

const isDescribed = (value: unknown): value is Described => (value as Described | null)?.model?.phases instanceof Map

/** The metadata that Nest's decorators leave on a class; empty without Nest. */
function nestMetadata(key: 'imports' | 'providers', type: unknown): readonly unknown[] {
  const { getMetadata } = Reflect as { getMetadata?: (key: string, type: unknown) => unknown }
  const found = typeof type === 'function' ? getMetadata?.(key, type) : undefined
  return Array.isArray(found) ? found : []
}

const isNestModule = (value: unknown): boolean =>
  nestMetadata('imports', value).length + nestMetadata('providers', value).length > 0

interface NestModule {
  readonly module?: unknown
  readonly imports?: readonly unknown[]
  readonly providers?: readonly unknown[]
  readonly forwardRef?: () => unknown
}

/** The lifecycles that a Nest module and those that it imports register, by the providers of `forFeature` and `forRoot`. */
async function registeredIn(given: unknown, seen = new Set<unknown>()): Promise<Described[]> {
  const module = (await given) as NestModule | null | undefined
  if (module == null || seen.has(module)) return []
  seen.add(module)
  if (typeof module.forwardRef === 'function') return registeredIn(module.forwardRef(), seen)
  const type = module.module ?? module
  const providers = [...nestMetadata('providers', type), ...listOf(module.providers)]
  const imports = [...nestMetadata('imports', type), ...listOf(module.imports)]
  const own = providers.flatMap((provider) =>
    listOf((provider as { useValue?: { lifecycles?: unknown } } | null)?.useValue?.lifecycles).filter(isDescribed),
  )
  const theirs: Described[] = []
  for (const one of imports) theirs.push(...(await registeredIn(one, seen)))
  return [...own, ...theirs]
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

function requireRunnable(module: string, given: unknown): asserts given is readonly RunnableLifecycle[] {
  if (!Array.isArray(given)) throw new InvalidLifecyclesModule(module, TO_RUN, `got ${describe(given)}`)
  if (given.length === 0) throw new InvalidLifecyclesModule(module, TO_RUN, 'got an empty array')
  for (const [i, one] of given.entries()) {
    if (isDescribed(one) && typeof (one as RunnableLifecycle).attach === 'function' && 'handlers' in one) continue
    const hint = typeof one?.handle === 'function' ? ', a definition without handlers: call its handle({...})' : ''
    throw new InvalidLifecyclesModule(module, TO_RUN, `element ${i} is ${describe(one)}${hint}`)
  }
  requireDistinct(module, TO_RUN, given)
}

function requireDistinct(module: string, expected: string, lifecycles: readonly Described[]): void {
  const names = lifecycles.map(({ model }) => model.name)
  const twice = names.find((name, i) => names.indexOf(name) !== i)
  if (twice !== undefined) throw new InvalidLifecyclesModule(module, expected, `got two lifecycles named '${twice}'`)
}

function describe(value: unknown): string {
  if (value === undefined) return 'no default export'
  if (value === null || typeof value !== 'object') return `a ${typeof value}`
  return Array.isArray(value) ? 'an array' : `an object with ${Object.keys(value).slice(0, 5).join(', ') || 'nothing'}`
}
