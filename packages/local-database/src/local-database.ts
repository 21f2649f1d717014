import {
  EngineMembership,
  existingEngineFolder,
  FIRST_START_BYTES,
  joinOrWait,
  type LocalAttempt,
  type LocalServer,
  type LocalSource,
  type Log,
  openEngine,
  openEngineFolder,
  requireFreeSpace,
} from './engine/index.js'
import { localServers } from './sources/index.js'

/** A server on 127.0.0.1, with its data in a folder. It runs as long as any process uses it. */
export interface LocalDatabase {
  port: number
  source: LocalSource
  /** The folder with its data. */
  dataPath: string
  /** Stops using it: the server ends once its last user has left. */
  leave(): void
}

export interface LocalDatabaseOptions {
  /** The folder of the database; its data is in the subfolder `db`. */
  dataDir: string
  /** The source of settings: MONGOMS_*, PATH, HOME, XDG_CACHE_HOME. */
  env: NodeJS.ProcessEnv
  /** Called with events, for users. */
  log: Log
  /** Called before a server is started. */
  starting(server: { source: LocalSource; name: string; dataPath: string }): void
  /** Called for a server that exists but doesn't work. */
  failed(attempt: LocalAttempt): void
  /** True to remove `dataDir` once no process uses it any more. For test runs. */
  temporary?: boolean | undefined
  /** The free space that the disk of a new database needs; default 500 MB. */
  firstStartBytes?: number | undefined
}

/**
 * Joins the database of a folder, or starts one: a `mongod` (MONGOMS_SYSTEM_BINARY, then PATH); a binary that
 * mongodb-memory-server has cached; the embedded engine; mongodb-memory-server's download. If it dies it is restarted,
 * as long as any process uses it.
 * @returns the attempts, if nothing starts
 * @throws DataDirUnusable, NotEnoughSpace, KeeperStuck
 */
export async function openLocalDatabase(
  options: LocalDatabaseOptions,
  servers: LocalServer[] = localServers(options.env, options.log),
): Promise<LocalDatabase | { tried: LocalAttempt[] }> {
  const { log, temporary = false, firstStartBytes = FIRST_START_BYTES, failed } = options
  const folder = await openEngineFolder(options.dataDir)
  await requireFreeSpace(folder, firstStartBytes)
  const starting = ({ source, name }: LocalServer) => options.starting({ source, name, dataPath: folder.data })
  const engineOptions = { servers, temporary, starting, failed }
  const opened = await openEngine(folder, engineOptions)
  if (!('link' in opened)) return opened
  const { port, source } = opened.link
  const membership = new EngineMembership(folder, opened.link, engineOptions, log)
  return { port, source, dataPath: folder.data, leave: () => membership.leave() }
}

/**
 * Joins the database of a folder if it is running. Never starts or creates anything, not even if it dies in the meantime.
 * @throws KeeperStuck
 */
export async function joinLocalDatabase(dataDir: string): Promise<LocalDatabase | undefined> {
  const folder = await existingEngineFolder(dataDir)
  const link = folder && (await joinOrWait(folder))
  return link && { port: link.port, source: link.source, dataPath: folder.data, leave: () => link.close() }
}
