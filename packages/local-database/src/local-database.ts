import {
  type Attempt,
  EngineMembership,
  existingEngineFolder,
  FIRST_START_BYTES,
  joinOrWait,
  type LocalServer,
  type LocalSource,
  type Log,
  openEngine,
  openEngineFolder,
  requireFreeSpace,
} from './engine/index.js'
import { localServers } from './sources/index.js'

/** A server on 127.0.0.1, with its data in a folder. It runs as long as anybody uses it. */
export interface LocalDatabase {
  port: number
  source: LocalSource
  /** Where its data is. */
  dataPath: string
  /** No longer uses it: the server ends when this was the last one. */
  leave(): void
}

export interface LocalDatabaseOptions {
  /** The folder of the database; data is in its `db`. */
  dataDir: string
  /** Where settings are read from: MONGOMS_*, PATH, HOME, XDG_CACHE_HOME. */
  env: NodeJS.ProcessEnv
  /** Told what happens, for people. */
  log: Log
  /** Told before a server is started. */
  starting(server: { source: LocalSource; name: string; dataPath: string }): void
  /** Told of a server that is there and doesn't work. */
  failed(attempt: Attempt): void
  /** Remove `dataDir` when nobody uses it any more. For test runs. */
  temporary?: boolean | undefined
  /** What a new database's disk must have free, 500 MB unless given. */
  firstStartBytes?: number | undefined
}

/**
 * Joins the database of a folder, or starts one: a `mongod` (MONGOMS_SYSTEM_BINARY, then PATH); a binary that
 * mongodb-memory-server has cached; the embedded engine; mongodb-memory-server's download. When it dies it is started again,
 * as long as anybody uses it.
 * @returns what was tried, when nothing starts
 * @throws DataDirUnusable, NotEnoughSpace, KeeperStuck
 */
export async function openLocalDatabase(
  options: LocalDatabaseOptions,
  servers: LocalServer[] = localServers(options.env, options.log),
): Promise<LocalDatabase | { tried: Attempt[] }> {
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
 * Joins the database of a folder where it runs. Never starts or creates anything, also not when it dies meanwhile.
 * @throws KeeperStuck
 */
export async function joinLocalDatabase(dataDir: string): Promise<LocalDatabase | undefined> {
  const folder = await existingEngineFolder(dataDir)
  const link = folder && (await joinOrWait(folder))
  return link && { port: link.port, source: link.source, dataPath: folder.data, leave: () => link.close() }
}
