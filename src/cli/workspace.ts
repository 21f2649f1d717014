import { statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Settings } from '../config/index.js'
import { ALPHA_NOTICE, connectDatabase, type DatabaseConnection, DEFAULT_LOCK_TIMEOUT_MS } from '../database/index.js'
import type { Logger, RunnableLifecycle } from '../phases/index.js'
import { formatMs } from '../time/index.js'
import { CliError, EXIT, InvalidLifecyclesModule } from './errors.js'
import { isKnown } from './report-error.js'

const NOTICE_MS = 3_000

/** A database and the lifecycles whose documents it holds. */
export interface Workspace {
  readonly connection: DatabaseConnection
  readonly lifecycles: readonly RunnableLifecycle[]
}

export interface WorkspaceOptions {
  readonly settings: Settings
  readonly cwd: string
  readonly env: NodeJS.ProcessEnv
  readonly logger: Logger
  /** Start no local database: use one that is already running. */
  readonly onlyJoin?: boolean | undefined
}

/**
 * Connects and loads the lifecycles. The connection's timeouts fit the shortest lockTimeout: if that is below the
 * default, the connection is opened again.
 */
export async function openWorkspace({ settings, cwd, env, logger, onlyJoin }: WorkspaceOptions): Promise<Workspace> {
  const factory = await lifecyclesFactory(settings.lifecycles, cwd)
  const open = async (lockTimeoutMs: number): Promise<Workspace> => {
    const { uri, connectTimeout } = settings
    const waits = `the MongoDB server has not answered yet; waiting for up to ${formatMs(connectTimeout)} (--connect-timeout)`
    const notice = setTimeout(() => uri && logger.info(waits), NOTICE_MS)
    const connection = await connectDatabase({
      uri,
      // The connection string is a setting like the others: read once, by readSettings. It is here only so that an error can name it.
      env: { ...env, MONGODB_URI: uri === env['MONGODB_URI'] ? uri : '' },
      dataDir: resolve(cwd, settings.dataDir),
      database: settings.database,
      timeout: `${connectTimeout}ms`,
      lockTimeout: `${lockTimeoutMs}ms`,
      onlyJoin,
      log: (message, fields) => (message.includes(ALPHA_NOTICE) ? logger.warn : logger.info)(message, fields),
    }).finally(() => clearTimeout(notice))
    try {
      return { connection, lifecycles: await factory(connection) }
    } catch (error) {
      await connection.close()
      throw error
    }
  }
  const first = await open(DEFAULT_LOCK_TIMEOUT_MS)
  const shortestMs = Math.min(...first.lifecycles.map(({ model }) => model.settings.lockTimeoutMs))
  if (shortestMs >= DEFAULT_LOCK_TIMEOUT_MS) return first
  try {
    return await open(shortestMs)
  } finally {
    await first.connection.close()
  }
}

/** Creates the lifecycles for a database. Called again if they need shorter timeouts than the first connection has. */
type LifecyclesFactory = (context: Pick<DatabaseConnection, 'db' | 'client'>) => Promise<readonly RunnableLifecycle[]>

/**
 * The lifecycles to run: those of the user's own module, else the built-in tasks.
 * @throws InvalidLifecyclesModule when it can't be found or exports something else; LifecyclesModuleFailed when the module
 *   itself throws, unless that error is one of Phaselock's own
 */
async function lifecyclesFactory(module: string | undefined, cwd: string): Promise<LifecyclesFactory> {
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

/** The module, or the function that it exports, may throw. Its own error is the cause, with its stack. */
async function theirs<T>(module: string, run: () => Promise<T>): Promise<T> {
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
