import { statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Db, MongoClient } from 'mongodb'
import type { RunnableLifecycle } from '../phases/index.js'
import { InvalidLifecyclesModule, LifecyclesModuleFailed } from './errors.js'
import { isKnown } from './report-error.js'

/** What a module's function is given. */
export interface LifecyclesContext {
  readonly db: Db
  readonly client: MongoClient
}

/** Creates the lifecycles for a database. Called again if they need shorter timeouts than the first connection has. */
export type LifecyclesFactory = (context: LifecyclesContext) => Promise<readonly RunnableLifecycle[]>

/**
 * The lifecycles to run: those of the user's own module, else the built-in tasks.
 * @throws InvalidLifecyclesModule when it can't be found or exports something else; LifecyclesModuleFailed when the module
 *   itself throws, unless that error is one of Phaselock's own
 */
export async function lifecyclesFactory(module: string | undefined, cwd: string): Promise<LifecyclesFactory> {
  if (module === undefined) return builtIn
  const url = locate(module, cwd)
  const loaded: { default?: unknown } = await theirs(module, () => import(url))
  const exported = loaded.default
  return async (context) => {
    const lifecycles = typeof exported === 'function' ? await theirs(module, () => exported(context)) : exported
    checkLifecycles(module, lifecycles)
    return lifecycles
  }
}

async function theirs<T>(module: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run()
  } catch (error) {
    throw isKnown(error) ? error : new LifecyclesModuleFailed(module, error)
  }
}

const builtIn: LifecyclesFactory = async ({ db }) => {
  const { apiGatewayLifecycles } = await import('../api-gateway/index.js')
  return apiGatewayLifecycles({ db }).all
}

function locate(module: string, cwd: string): string {
  const file = resolve(cwd, module)
  const found = statSync(file, { throwIfNoEntry: false })
  if (found && !found.isDirectory()) return pathToFileURL(file).href
  if (/^(\.|\/)/.test(module))
    throw new InvalidLifecyclesModule(
      module,
      found ? `${file} is a folder; name a file in it` : `there is no file ${file}`,
    )
  try {
    return pathToFileURL(createRequire(resolve(cwd, 'package.json')).resolve(module)).href
  } catch (cause) {
    throw new InvalidLifecyclesModule(module, `there is neither a file ${file} nor a package of that name`, { cause })
  }
}

function checkLifecycles(module: string, given: unknown): asserts given is readonly RunnableLifecycle[] {
  if (!Array.isArray(given)) throw new InvalidLifecyclesModule(module, `got ${describe(given)}`)
  if (given.length === 0) throw new InvalidLifecyclesModule(module, 'got an empty array')
  for (const [i, one] of given.entries()) {
    if (one?.model?.phases instanceof Map && typeof one.attach === 'function' && one.handlers) continue
    const hint = typeof one?.handle === 'function' ? ', a definition without handlers: call its handle({...})' : ''
    throw new InvalidLifecyclesModule(module, `element ${i} is ${describe(one)}${hint}`)
  }
  const names: string[] = given.map((one) => one.model.name)
  const twice = names.find((name, i) => names.indexOf(name) !== i)
  if (twice !== undefined) throw new InvalidLifecyclesModule(module, `got two lifecycles named '${twice}'`)
}

function describe(value: unknown): string {
  if (value === undefined) return 'no default export'
  if (value === null || typeof value !== 'object') return `a ${typeof value}`
  return Array.isArray(value) ? 'an array' : `an object with ${Object.keys(value).slice(0, 5).join(', ') || 'nothing'}`
}
