import type { Db } from 'mongodb'
import { unknownOptions } from '../options/index.js'
import { holderIdentity } from './acquisition.js'
import { chooseProvider, type LockMode, PROVIDER_KINDS, type ProviderKind, urlsIn } from './choose-provider.js'
import { InvalidLockProvider } from './errors.js'
import type { OperableLockProvider } from './lock-provider.js'
import type { LockStore } from './lock-store.js'
import { NamedLocks } from './named-locks.js'
import { CONNECT_WITHIN_MS, driver, openMysql, openRedis } from './open-drivers.js'
import type { MysqlPool } from './providers/mysql.js'
import type { PostgresPool } from './providers/postgres.js'
import type { RedisClient } from './providers/redis.js'

/** A `Db` of the MongoDB driver, by its shape. */
export interface LockDb {
  /** Same as the driver's `Db`. */
  collection(name: string): object
  /** Same as the driver's `Db`: runs one command on the database. */
  command(command: object): Promise<unknown>
}

/** The options of `openLockProvider`. All may be omitted: then the environment decides. */
export interface LockProviderOptions {
  /** Default 'auto': PHASELOCK_LOCKS, else by `url`, `client` and mode. */
  readonly provider?: ProviderKind | 'auto' | undefined
  /** Default 'auto': PHASELOCK_MODE, else found from the environment. */
  readonly mode?: LockMode | undefined
  /**
   * mongodb://, postgres://, mysql://, mariadb:// or redis://, or three and more of redis://, separated by commas, for a quorum; opened here and closed by
   * `close()`. Default: PHASELOCK_LOCKS_URL.
   */
  readonly url?: string | undefined
  /** Your own `Db`, `Pool` of pg, mysql2 (`mysql2/promise`) or mariadb, client of ioredis or redis, or a list of such clients for a quorum. You close it. */
  readonly client?: LockDb | PostgresPool | MysqlPool | RedisClient | readonly RedisClient[] | undefined
  /** The identity of this process in lockedBy. Default: POD_NAME, else host and process id; made unique per start. */
  readonly name?: string | undefined
  /** MongoDB: default ShedLock's own, 'shedLock'. */
  readonly collection?: string | undefined
  /** PostgreSQL and MySQL: default ShedLock's own, 'shedlock'. */
  readonly table?: string | undefined
  /** PostgreSQL and MySQL: true to create a missing table or fence column when it is first needed. Default true. */
  readonly migrate?: boolean | undefined
  /** Redis: the first part of a key. Default ShedLock's own, 'job-lock'. */
  readonly prefix?: string | undefined
  /** Redis: the second part of a key. Default ShedLock's own, 'default'. */
  readonly environment?: string | undefined
  /** A quorum of Redis servers: the tries after a vote that no caller has won. Default 10. */
  readonly retryCount?: number | undefined
  /** A quorum of Redis servers: the mean pause before such a try, in ms. Default 200. */
  readonly retryDelayMs?: number | undefined
  /** A quorum of Redis servers: the part of lockAtMostFor by which their clocks may run apart. Default 0.01. */
  readonly driftFactor?: number | undefined
  /** The source of options that aren't given. Default process.env. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined
}

const OF_ALL = ['provider', 'mode', 'url', 'client', 'name', 'env']
const OF_ONE = ['collection', 'table', 'migrate', 'prefix', 'environment', 'retryCount', 'retryDelayMs', 'driftFactor']
/** A server of a quorum that is away must not cost the lock's time: the others decide. */
const QUORUM_ANSWER_WITHIN_MS = 1_000

/**
 * Opens a lock provider. Only the driver in use is loaded: `mongodb` comes with Phaselock, `pg` and `ioredis` are yours to
 * install. PostgreSQL and Redis may be down: no locks are granted until they are back.
 * @param fallback a database of this process, for locks that are configured nowhere else
 * @throws InvalidLockProvider; DatabaseUnreachable and similar errors if a mongodb:// URL can't be connected to
 */
export async function openLockProvider(
  options: LockProviderOptions = {},
  fallback?: LockDb | undefined,
): Promise<OperableLockProvider> {
  const given = checked(options)
  const kind = chooseProvider({ ...given, hasDatabase: fallback !== undefined })
  const store = await OPEN[kind](given, fallback)
  return new NamedLocks(store, holderIdentity(given.name ?? (given.env['POD_NAME'] || undefined)))
}

/**
 * Named locks in an open database, next to the app's other collections. Closing the client is up to the code that opened it.
 * @param options.name the identity of this process; default POD_NAME, else host and process id
 * @param options.collection default ShedLock's own, 'shedLock'
 */
export function mongoLockProvider(db: Db, options: { name?: string; collection?: string } = {}): OperableLockProvider {
  const open = async () => new (await import('./providers/mongodb.js')).MongoLockStore(db, options.collection)
  return new NamedLocks(openedLater('mongodb', open), holderIdentity(options.name))
}

/** A store whose driver is loaded on the first command. */
function openedLater(kind: ProviderKind, open: () => Promise<LockStore>): LockStore {
  let opened: Promise<LockStore> | undefined
  const store = () => {
    opened ??= open()
    return opened
  }
  return {
    kind,
    take: async (request) => (await store()).take(request),
    free: async (...args) => (await store()).free(...args),
    extend: async (...args) => (await store()).extend(...args),
    find: async (name) => (await store()).find(name),
    holders: async (names) => (await store()).holders(names),
    list: async (heldOnly) => (await store()).list(heldOnly),
    release: async (...args) => (await store()).release(...args),
    close: async () => (await opened)?.close(),
  }
}

type Given = Omit<LockProviderOptions, 'env'> & { readonly env: Readonly<Record<string, string | undefined>> }

function checked(options: LockProviderOptions): Given {
  const problems = unknownOptions(Object.keys(options), [...OF_ALL, ...OF_ONE], { noun: 'option of locks' })
  if (problems.length > 0) throw new InvalidLockProvider(problems.join('\n'))
  const env = options.env ?? process.env
  const ofEnv = (variable: string) => env[variable]?.trim() || undefined
  const provider = options.provider ?? ofEnv('PHASELOCK_LOCKS') ?? 'auto'
  const mode = options.mode ?? ofEnv('PHASELOCK_MODE') ?? 'auto'
  requireOneOf('provider', provider, ['auto', ...PROVIDER_KINDS])
  requireOneOf('mode', mode, ['auto', 'single', 'distributed'])
  const url = options.url ?? (options.client === undefined ? ofEnv('PHASELOCK_LOCKS_URL') : undefined)
  return { ...options, provider: provider as ProviderKind | 'auto', mode: mode as LockMode, url, env }
}

function requireOneOf(option: string, value: string, known: readonly string[]): void {
  if (!known.includes(value))
    throw new InvalidLockProvider(`${option}: expected one of ${known.join(', ')} for locks, got '${value}'`)
}

/** Two votes of one server would be taken for a majority. */
function refuseRepeated(servers: readonly unknown[]): void {
  const index = servers.findIndex((server, i) => servers.indexOf(server) < i)
  if (index >= 0)
    throw new InvalidLockProvider(
      `expected different Redis servers for a quorum, got number ${index + 1} again, which is number ${servers.indexOf(servers[index]) + 1}; each has one vote`,
    )
}

/** The host and port: the databases of one server are down together. */
const serverIn = (url: string): string => {
  const [, host = url] = /^rediss?:\/\/(?:[^@/]*@)?([^/?]+)/i.exec(url) ?? []
  return host.toLowerCase().replace(/:6379$/, '')
}

const OPEN: Record<ProviderKind, (given: Given, fallback: LockDb | undefined) => Promise<LockStore>> = {
  async mongodb({ url, client, collection, env }, fallback) {
    const { MongoLockStore } = await import('./providers/mongodb.js')
    const db = (client as LockDb | undefined) ?? (url ? undefined : fallback)
    if (db) return new MongoLockStore(db as ConstructorParameters<typeof MongoLockStore>[0], collection)
    const { connectDatabase, connectWith } = await import('../database/index.js')
    // A server of the locks' own has its database in its URL.
    const connect = url ? connectWith : connectDatabase
    const connection = await connect({ uri: url, env, log: () => undefined })
    return new MongoLockStore(connection.db, collection, () => connection.close())
  },

  async postgres({ url, client, table, migrate }) {
    const { PostgresLockStore } = await import('./providers/postgres.js')
    if (client) return new PostgresLockStore(client as PostgresPool, { table, migrate })
    const pg = await driver('pg', 'postgres', () => import('pg'))
    const pool = new pg.default.Pool({
      connectionString: url,
      connectionTimeoutMillis: CONNECT_WITHIN_MS,
      query_timeout: CONNECT_WITHIN_MS,
      statement_timeout: CONNECT_WITHIN_MS,
      allowExitOnIdle: true,
      application_name: 'phaselock',
    })
    // An idle connection broke: the next query opens a new one, or fails.
    pool.on('error', () => undefined)
    return new PostgresLockStore(pool, { table, migrate, onClose: () => pool.end() })
  },

  async redis({ url, client, prefix, environment }) {
    const { RedisLockStore } = await import('./providers/redis.js')
    if (client) return new RedisLockStore(client as RedisClient, { prefix, environment })
    const opened = await openRedis(url!)
    return new RedisLockStore(opened, { prefix, environment, onClose: opened.close })
  },

  async 'redis-quorum'({ url, client, prefix, environment, retryCount, retryDelayMs, driftFactor }) {
    const { RedisLockStore } = await import('./providers/redis.js')
    const { RedisQuorumStore } = await import('./providers/redis-quorum.js')
    const of = { prefix, environment, answerWithinMs: QUORUM_ANSWER_WITHIN_MS }
    refuseRepeated(client ? (client as readonly RedisClient[]) : urlsIn(url!).map(serverIn))
    const nodes = client
      ? (client as readonly RedisClient[]).map((one) => new RedisLockStore(one, of))
      : await Promise.all(
          urlsIn(url!).map(async (one) => {
            const opened = await openRedis(one)
            return new RedisLockStore(opened, { ...of, onClose: opened.close })
          }),
        )
    return new RedisQuorumStore(nodes, { retryCount, retryDelayMs, driftFactor })
  },

  async mysql({ url, client, table, migrate }) {
    const { MysqlLockStore } = await import('./providers/mysql.js')
    if (client) return new MysqlLockStore(client as MysqlPool, { table, migrate })
    const pool = await openMysql(url!)
    return new MysqlLockStore(pool, { table, migrate, onClose: () => pool.end() })
  },

  async memory() {
    const { sharedMemory } = await import('./providers/memory.js')
    return sharedMemory
  },
}
