import { resolve } from 'node:path'
import type { Settings } from '../config/index.js'
import { ALPHA_NOTICE, connectWith, type DatabaseConnection, DEFAULT_LOCK_TIMEOUT_MS } from '../database/index.js'
import { UsageError } from '../operations/index.js'
import type { Logger, RunnableLifecycle } from '../phases/index.js'
import { formatMs } from '../time/index.js'
import { type Described, runnableLifecycles } from './lifecycles-file.js'

const NOTICE_MS = 3_000

/** A database and the lifecycles whose documents it holds. */
export interface Workspace<Lifecycle extends Described = RunnableLifecycle> {
  readonly connection: DatabaseConnection
  readonly lifecycles: readonly Lifecycle[]
}

export interface WorkspaceOptions {
  readonly settings: Settings
  readonly cwd: string
  readonly env: NodeJS.ProcessEnv
  readonly logger: Logger
  /** If true, starts no local database: uses one that is already running. */
  readonly onlyJoin?: boolean | undefined
}

/**
 * Opens the workspace of a replica, with the lifecycles of the module that `--lifecycles` names. @throws UsageError if no module is named,
 * before anything is opened
 */
export async function openWorkspace(options: WorkspaceOptions): Promise<Workspace> {
  const module = requireLifecycles(options.settings)
  return await openWith(options, await runnableLifecycles(module, options.cwd))
}

/**
 * The module whose lifecycles a replica runs. None is built in: a replica registers its lifecycles in the user's database.
 * @throws UsageError
 */
export function requireLifecycles({ lifecycles }: Settings): string {
  if (lifecycles !== undefined) return lifecycles
  throw new UsageError(
    'expected --lifecycles (PHASELOCK_LIFECYCLES) to name the module whose lifecycles this replica runs, got none: a file or package whose default export is an array of lifecycles, each with its handlers; such as: phaselock start --lifecycles ./lifecycles.js. A Nest app with PhaselockModule runs its own when it starts. To watch replicas at work: npx phaselock demo',
  )
}

/**
 * Connects and loads the lifecycles. The connection's timeouts fit the shortest lockTimeout: if that is below the
 * default, the connection is opened again.
 */
export async function openWith<Lifecycle extends Described>(
  { settings, cwd, env, logger, onlyJoin }: WorkspaceOptions,
  factory: (connection: DatabaseConnection) => Promise<readonly Lifecycle[]>,
): Promise<Workspace<Lifecycle>> {
  const open = async (lockTimeoutMs: number): Promise<Workspace<Lifecycle>> => {
    const { uri, connectTimeout } = settings
    const waits = `the MongoDB server has not answered yet; waiting for up to ${formatMs(connectTimeout)} (--connect-timeout)`
    const notice = setTimeout(() => uri && logger.info(waits), NOTICE_MS)
    const connection = await connectWith({
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
