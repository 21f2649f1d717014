import { requireNode } from '../config/index.js'
import { readOptions, t } from '../options/index.js'
import { type ReplicaOptions, type RunnableLifecycle, runnableLifecycles, sharedOptions } from '../phases/index.js'
import type { Duration } from '../time/index.js'
import { InvalidModuleOptions } from './errors.js'
import { HOOKS, type Hooks } from './hooks.js'
import type { AsyncOptions, LocksOptions } from './locks/options.js'

/** The app's own handles, typed by their shape: an app may bring another copy of the driver (Mongoose does), with different class types. */
export interface AppDb {
  /** The database of lifecycles whose `forFeature` names none. */
  readonly databaseName: string
  /** Same as the driver's `Db`. */
  collection(name: string): object
  /** Same as the driver's `Db`: runs one command on the database. */
  command(command: object): Promise<unknown>
}

/** The app's own MongoClient, by its shape. */
export interface AppClient {
  /** Same as the driver's. */
  db(name?: string): AppDb
  /** Identifies a client by its shape: it is never called, because the client is already connected. */
  connect(): Promise<unknown>
}

/** An open connection of the app's own, from Mongoose or `connectDatabase()`. If it is still opening, it is awaited. */
export interface AppConnection {
  /** The database of the lifecycles; absent while a Mongoose connection is still opening. */
  readonly db?: AppDb | undefined
  /** Identifies a connection by its shape: it is never called, because you close the connections that you have opened. */
  close(): Promise<unknown>
  /** Mongoose's: resolves when the connection is open. Awaited if there is no `db` yet. */
  asPromise?(): Promise<unknown>
}

/** The options of `PhaselockModule.forFeature` besides the lifecycles. */
export interface FeatureOptions {
  /** The database of these lifecycles' documents, on the same server. Default: that of the module. */
  readonly database?: string | undefined
}

/** Replica options that the module passes on. Default: their settings in the environment; for `logger`: Nest's, with the context 'Phaselock'. */
type PassedOn = Pick<ReplicaOptions, keyof typeof sharedOptions>

/** The options of `PhaselockModule.forRoot`. At most one of `uri`, `client`, `db` and `connection`; without any, `connectDatabase()` decides. */
export interface PhaselockModuleOptions extends Hooks, PassedOn {
  /** A connection string; empty counts as not given. Default: MONGODB_URI, else a local database for development. */
  readonly uri?: string | undefined
  /** Your own connected client, with `database`. You close it, after the app. */
  readonly client?: AppClient
  /** The database's name. Required with `client`; otherwise the default is the one in the connection string, else 'phaselock'. */
  readonly database?: string | undefined
  /** Your own database handle. You close its client, after the app. */
  readonly db?: AppDb
  /** A Mongoose connection, or one from `connectDatabase()`. You close it, after the app. */
  readonly connection?: AppConnection
  /** Lifecycles that already have their handlers: `lifecycle.handle({...})`. */
  readonly lifecycles?: readonly RunnableLifecycle[] | undefined
  /** True if this process works on documents, once a second. `false`: it only inserts and owns them. Default true. */
  readonly tick?: boolean | undefined
  /** The source of settings that no option in code sets: PHASELOCK_GRACE and the like (docs/settings.md). Default process.env. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined
  /** Named locks: `@SchedulerLock` and `LockExecutor`. Default: in this module's database. */
  readonly locks?: LocksOptions | undefined
}

/** The options of `PhaselockModule.forRootAsync`. */
export type PhaselockModuleAsyncOptions = AsyncOptions<PhaselockModuleOptions>

/** The checked options, with defaults filled in. */
export interface ModuleSettings extends PhaselockModuleOptions {
  /** The folder of a local database; undefined: the default. */
  readonly dataDir?: string | undefined
  /** The time limit for connecting to the server of a connection string; undefined: the default. */
  readonly connectTimeout?: Duration | undefined
  readonly lifecycles: readonly RunnableLifecycle[]
  readonly tick: boolean
}

const connection = t.checked(
  t.having(['close'], 'a Mongoose connection or one from connectDatabase()'),
  // A Mongoose connection has no db before it is open.
  (value) => 'db' in value || 'asPromise' in value,
  'expected a Mongoose connection or one from connectDatabase(), but it has no db',
)

const moduleOptions = t.object({
  uri: t.optional(t.text),
  client: t.optional(t.having(['db', 'connect'], 'a MongoClient')),
  database: t.optional(t.aDatabaseName),
  db: t.optional(t.having(['collection', 'command'], 'a Db of the mongodb driver')),
  connection: t.optional(connection),
  lifecycles: t.optional(runnableLifecycles),
  ...sharedOptions,
  tick: t.optional(t.flag),
  env: t.optional(t.having([], 'an object with environment variables')),
  locks: t.optional(t.having([], 'an object with the options of named locks')),
  ...Object.fromEntries(HOOKS.map((name) => [name, t.optional(t.aFunction())])),
})

const featureOptions = t.object({ database: t.optional(t.aDatabaseName) })

const CONNECTIONS = ['uri', 'client', 'db', 'connection'] as const

/** @throws InvalidModuleOptions listing every problem: unknown options, wrong types, two databases given; UnsupportedNode */
export function parseOptions(given: PhaselockModuleOptions = {}): ModuleSettings {
  requireNode()
  const read = readOptions(moduleOptions, given)
  const problems = 'problems' in read ? [...read.problems] : []
  if (given && typeof given === 'object') problems.push(...connectionProblems(given))
  if (problems.length > 0) throw new InvalidModuleOptions(problems)
  return { ...given, lifecycles: given.lifecycles ?? [], tick: given.tick ?? true }
}

/** @throws InvalidModuleOptions */
export function parseFeatureOptions(given: FeatureOptions): FeatureOptions {
  const read = readOptions(featureOptions, given)
  if ('problems' in read) throw new InvalidModuleOptions(read.problems.map((problem) => `forFeature: ${problem}`))
  return given
}

function connectionProblems(given: PhaselockModuleOptions): string[] {
  const used = CONNECTIONS.filter((name) => given[name] !== undefined && given[name] !== '')
  // An undefined handle would silently select a database other than the intended one.
  const problems = (['client', 'db', 'connection'] as const)
    .filter((name) => name in given && given[name] === undefined)
    .map((name) => `${name}: expected a value, got undefined; is the connection open when the options are built?`)
  if (used.length > 1) problems.push(`expected one of ${CONNECTIONS.join(', ')}, got ${used.join(' and ')}; keep one`)
  if (given.client !== undefined && given.database === undefined)
    problems.push("client: expected the database's name too; add `database: '...'`")
  if (given.database !== undefined && (given.db !== undefined || given.connection !== undefined))
    problems.push(`database: ${given.db ? 'db' : 'connection'} already names its database; remove it`)
  return problems
}
