import { InvalidLockProvider } from './errors.js'
import type { MysqlPool } from './providers/mysql.js'

/** How long a server may take to accept a connection, or to answer. */
export const CONNECT_WITHIN_MS = 5_000

/** Loads a driver, which is the user's to install. @throws InvalidLockProvider that says what to install */
export async function driver<T>(name: string, kind: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load()
  } catch (error) {
    const problem = `expected the package ${name} for locks in ${kind}, but it can't be loaded; run npm install ${name}`
    throw new InvalidLockProvider(problem, { cause: error })
  }
}

/** A client of ioredis for one server, with its own failures in its errors. */
export async function openRedis(url: string) {
  const { Redis } = await driver('ioredis', 'redis', () => import('ioredis'))
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: CONNECT_WITHIN_MS,
    // A connection that went silent is closed and replaced.
    socketTimeout: CONNECT_WITHIN_MS,
    maxRetriesPerRequest: 1,
    // If the connection is already gone, the client still waits for it to close, and so keeps the process from exiting.
    disconnectTimeout: 250,
    connectionName: 'phaselock',
  })
  let broken: unknown
  redis.on('error', (error) => {
    broken = error
  })
  redis.on('ready', () => {
    broken = undefined
  })
  // 'Reached the max retries' doesn't help: report the actual failure.
  const call = (command: string, ...args: string[]) =>
    redis.call(command, ...args).catch((error) => Promise.reject(broken ?? error))
  return { call, close: async () => redis.disconnect() }
}

/** A pool of the client that the URL names: `mysql2` for mysql://, `mariadb` for mariadb://. Either talks to both servers. */
export async function openMysql(url: string): Promise<MysqlPool & { end(): Promise<void> }> {
  if (url.startsWith('mariadb:')) {
    const { createPool } = await driver('mariadb', 'mysql', () => import('mariadb'))
    const to = new URL(url)
    return createPool({
      host: to.hostname,
      port: Number(to.port || 3306),
      user: decodeURIComponent(to.username),
      password: decodeURIComponent(to.password),
      database: decodeURIComponent(to.pathname.slice(1)),
      connectTimeout: CONNECT_WITHIN_MS,
      acquireTimeout: CONNECT_WITHIN_MS,
      ...Object.fromEntries(to.searchParams),
    })
  }
  const { createPool } = await driver('mysql2', 'mysql', () => import('mysql2/promise'))
  return createPool({ uri: url, connectTimeout: CONNECT_WITHIN_MS, enableKeepAlive: true })
}
