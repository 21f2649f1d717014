import type { Db, MongoClient, MongoClientOptions } from 'mongodb'
import { inMs, requireNode, settingsIn, withoutEffect } from '../config/index.js'
import { checkOptions, InvalidOptions, shown, t, toStandardError } from '../options/index.js'
import { type Duration, durationMs } from '../time/index.js'
import {
  type LocalDatabase,
  type LocalDatabasePackage,
  type LocalDatabaseSource,
  type Log,
  localDatabase,
} from './local-database.js'
import { protocolClient } from './protocol-client.js'
import { LISTENING, protocolClientOptions } from './protocol-options.js'
import { DatabaseUnreachable, unreachableReason } from './unreachable.js'
import { databaseNameInUri, redactUri, withoutProtocolOptions } from './uri.js'

const DEFAULT_LOCK_TIMEOUT = '30s'
export const DEFAULT_DATABASE = 'phaselock'
export const DEFAULT_DATA_DIR = '.phaselock'

/** The options of `connectDatabase`; all of them are optional. */
export interface ConnectOptions {
  /** A connection string; wins over MONGODB_URI. Empty counts as not given. */
  uri?: string | undefined
  /** The folder of the local database. Default: PHASELOCK_DATA_DIR, otherwise `.phaselock` in the current folder; data is in its `db`. */
  dataDir?: string | undefined
  /** The database's name. Default: PHASELOCK_DATABASE, then the one in the URI's path, otherwise 'phaselock'. */
  database?: string | undefined
  /** Source of MONGODB_URI, PHASELOCK_*, KUBERNETES_SERVICE_HOST, NODE_ENV; for a local database also of MONGOMS_*, PATH, HOME, XDG_CACHE_HOME. */
  env?: NodeJS.ProcessEnv | undefined
  /** Receives messages for people about what happens. Default: standard error. */
  log?: Log | undefined
  /** How long a server of a URI may take to answer. Default: PHASELOCK_CONNECT_TIMEOUT, otherwise a third of the lock timeout. */
  timeout?: Duration | undefined
  /** The shortest lock timeout that the client will serve, 30s unless given: each wait of the driver ends within a third of it. */
  lockTimeout?: Duration | undefined
  /** Without a URI, use a local database only if it is already running: for read-only work. Default: one is started. */
  onlyJoin?: boolean | undefined
  /** Remove `dataDir` when the last replica has gone. For test runs. */
  temporary?: boolean | undefined
  /** Free disk space that a new local database needs, 500 MB. @internal */
  firstStartBytes?: number | undefined
}

const aDuration = t.optional(t.durationText('1ms', '1d'))
const connectOptions = t.object({
  uri: t.optional(t.text),
  dataDir: t.optional(t.text),
  database: t.optional(t.text),
  env: t.optional(t.having<NodeJS.ProcessEnv>([], 'an object with environment variables')),
  log: t.optional(t.aFunction<Log>()),
  timeout: aDuration,
  lockTimeout: aDuration,
  onlyJoin: t.optional(t.flag),
  temporary: t.optional(t.flag),
  firstStartBytes: t.optional(t.aNumber),
} satisfies t.TypesOf<ConnectOptions>)
const NAMES = { internal: ['firstStartBytes'], renamed: { timeoutMs: 'timeout', lockTimeoutMs: 'lockTimeout' } }

/**
 * The origin of a database: `uri`, a connection string; else it is a local one, run by `system-mongod` (MONGOMS_SYSTEM_BINARY or
 * the PATH), `cached-mongod` (an earlier download), `embedded` (the alpha engine) or `download` (a mongod that was downloaded just
 * now).
 */
export type DatabaseSource = 'uri' | LocalDatabaseSource

/** An open connection, as `connectDatabase` returns it. */
export interface DatabaseConnection {
  /** Connected, with the timeouts and the write concern that the lock protocol needs; those of the URI are ignored. */
  client: MongoClient
  /** The database of the option `database`, else of the URI's path, else 'phaselock'. */
  db: Db
  /** The connection string as it works for any other client. It may hold a password: print `redactUri(uri)`. */
  uri: string
  /** A server of yours or a local database, for messages. */
  source: DatabaseSource
  /** The data folder of a local database. */
  dataPath?: string
  /** Closes the client and those of `renewalClient` and `doorbellClient`; a local database ends with its last user. */
  close(): Promise<void>
}

/**
 * The one way to a database: the URI (option, then MONGODB_URI); without one, for development, the local database that
 * `phaselock-local-database` runs, where that package is installed: never in a pod, and never with NODE_ENV=production.
 * Where an option isn't given, the setting of the command line is in force: PHASELOCK_DATABASE, PHASELOCK_DATA_DIR, PHASELOCK_CONNECT_TIMEOUT.
 * A local database belongs to its `dataDir`: everyone who connects to the same folder at the same time shares one.
 * @throws InvalidMongoUri the connection string can't be read
 * @throws DatabaseUnreachable the server of the connection string doesn't answer within `timeout`, or refuses
 * @throws NoDatabase no URI was given, and there is no local database
 * @throws DataDirUnusable the local database's folder can't be written
 * @throws NotEnoughSpace a new local database needs 500 MB of free space
 * @throws KeeperStuck the local database's keeper hangs
 * @throws UnsupportedNode this Node.js is too old
 * @throws InvalidOptions an option that isn't known, or has another type; a duration without a unit
 * @throws InvalidSettings an unknown variable `PHASELOCK_*`, or a value of one that can't be used
 */
export async function connectDatabase(options: ConnectOptions = {}): Promise<DatabaseConnection> {
  checkOptions('connectDatabase', connectOptions, options, NAMES)
  return await connectWith(withSettings(options))
}

/** Options, and for those that aren't given the settings of the environment. */
function withSettings(options: ConnectOptions): ConnectOptions {
  const { env = process.env, log = logToStandardError } = options
  const keys = { uri: 'uri', database: 'database', dataDir: 'dataDir', timeout: 'connectTimeout' } as const
  const overrides = (['database', 'dataDir', 'timeout', 'uri'] as const)
    .filter((option) => options[option] !== undefined && options[option] !== '')
    .map((option) => ({ key: keys[option], option, value: options[option] }))
  const { database, dataDir, connectTimeout } = settingsIn(
    env,
    overrides.map(({ key }) => key),
  )
  const settings = { database, dataDir, timeout: inMs(connectTimeout) }
  const won = withoutEffect(
    env,
    overrides.filter(({ option }) => option !== 'uri'),
  )
  if (won.length > 0)
    log(`these settings of the environment have no effect, because connectDatabase's option wins: ${won.join(', ')}`)
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
  return { ...settings, ...given }
}

type Prepared = ConnectOptions & { env: NodeJS.ProcessEnv; log: Log }

/**
 * The same without settings but MONGODB_URI: for whoever has read them, or has a server of its own in mind.
 * @param load the package for local databases
 */
export async function connectWith(
  options: ConnectOptions,
  load?: () => Promise<LocalDatabasePackage | undefined>,
): Promise<DatabaseConnection> {
  requireNode()
  const { env = process.env, log = logToStandardError, uri: given } = options
  const prepared = { ...options, env, log }
  const variable = env['MONGODB_URI']?.trim()
  const uri = given?.trim() || variable
  if (uri) return await connectToUri(uri, uri === variable ? 'MONGODB_URI' : 'the uri option', prepared)
  return await connectToLocal(prepared, load)
}

async function connectToUri(uri: string, origin: string, options: Prepared): Promise<DatabaseConnection> {
  const database = options.database ?? databaseNameInUri(uri, origin) ?? DEFAULT_DATABASE
  const client = await openClient(uri, options)
  return { client, db: client.db(database), uri, source: 'uri', close: closing(client) }
}

async function connectToLocal(
  options: Prepared,
  load?: () => Promise<LocalDatabasePackage | undefined>,
): Promise<DatabaseConnection> {
  const { onlyJoin = false, dataDir = DEFAULT_DATA_DIR, database = DEFAULT_DATABASE } = options
  const local = await localDatabase({ ...options, dataDir }, onlyJoin, load)
  const { port, source, dataPath } = local
  const uri = `mongodb://127.0.0.1:${port}/${encodeURIComponent(database)}?directConnection=true`
  try {
    const client = await openClient(uri, options)
    return { client, db: client.db(database), uri, source, dataPath, close: closing(client, local) }
  } catch (error) {
    local.leave()
    throw error
  }
}

/** @param more settings in place of the protocol's */
async function connectClient(
  uri: string,
  lockTimeout: Duration = DEFAULT_LOCK_TIMEOUT,
  more: MongoClientOptions = {},
): Promise<MongoClient> {
  const settings = { ...protocolClientOptions(durationMs(lockTimeout)), ...more }
  const client = protocolClient(withoutProtocolOptions(uri), settings)
  try {
    await client.connect()
    await client.db('admin').command({ ping: 1 })
    return client
  } catch (error) {
    await client.close().catch(() => undefined)
    const failure = error as Error
    const [redacted, reason] = [redactUri(uri), unreachableReason(failure)]
    throw new DatabaseUnreachable(redacted, reason, failure.message.split(uri).join(redacted))
  }
}

const openClient = (uri: string, { lockTimeout, timeout }: ConnectOptions): Promise<MongoClient> =>
  connectClient(uri, lockTimeout, timeout === undefined ? {} : { serverSelectionTimeoutMS: durationMs(timeout) })

/** Clients that are closed together with another one. */
const companions = new WeakMap<MongoClient, MongoClient[]>()

/**
 * Opens a separate client with one connection, for the renewal of leases: a full pool must never cost a lease. It closes with
 * `connection`.
 * @throws DatabaseUnreachable; InvalidOptions
 */
export async function renewalClient(connection: Opened, lockTimeout?: Duration): Promise<MongoClient> {
  return await companionOf('renewalClient', connection, lockTimeout, { maxPoolSize: 1, minPoolSize: 0 })
}

/**
 * Opens a separate client on which a replica listens to the doorbell: its answers may take half a minute. It closes with
 * `connection`.
 * @throws DatabaseUnreachable; InvalidOptions
 */
export async function doorbellClient(connection: Opened, lockTimeout?: Duration): Promise<MongoClient> {
  return await companionOf('doorbellClient', connection, lockTimeout, LISTENING)
}

type Opened = Pick<DatabaseConnection, 'client' | 'uri'>

async function companionOf(
  called: string,
  connection: Opened,
  lockTimeout: Duration | undefined,
  more: MongoClientOptions,
) {
  const { client, uri } = connection ?? {}
  if (typeof uri !== 'string' || typeof client !== 'object')
    throw new InvalidOptions(called, [`expected what connectDatabase() gave, got ${shown(connection)}`])
  const companion = await connectClient(uri, lockTimeout, more)
  companions.set(client, [...(companions.get(client) ?? []), companion])
  return companion
}

function closing(client: MongoClient, local?: LocalDatabase): () => Promise<void> {
  return async () => {
    const clients = [client, ...(companions.get(client) ?? [])]
    companions.delete(client)
    await Promise.all(clients.map((each) => each.close().catch(() => undefined)))
    local?.leave()
  }
}

const logToStandardError: Log = (message, fields) => toStandardError('info', message, fields)
