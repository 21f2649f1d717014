import { randomBytes } from 'node:crypto'
import { afterEach, beforeEach } from '@jest/globals'
import { type Db, MongoClient } from 'mongodb'
import { sleep, systemClock } from '../../src/time/index.js'

export interface TestDatabase {
  client: MongoClient
  db: Db
  /** The connection string with the database in its path: `connectDatabase({ uri })` gets the same one. */
  uri: string
  /** Drops the database and closes the client. */
  drop(): Promise<void>
}

/** The run's server, started by Jest's globalSetup. */
export function testServerUri(): string {
  const uri = process.env['PHASELOCK_TEST_MONGODB_URI']
  if (!uri)
    throw new Error(
      'expected PHASELOCK_TEST_MONGODB_URI from globalSetup, it is not set; run the tests with jest.config.mjs',
    )
  return uri
}

/** The write concern in which the run's server keeps what it acknowledges: a replica set's is not that of a server alone. */
export async function durableThere(db: Db): Promise<{ w: 1 | 'majority'; j: true }> {
  const { setName, msg } = await db.admin().command({ hello: 1 })
  return { w: setName || msg === 'isdbgrid' ? 'majority' : 1, j: true }
}

/** The same server's connection string with another database; credentials stay those of the database that they belonged to. */
export function withDatabase(uri: string, name: string): string {
  const [, server = uri, path = '', query = ''] = /^([^/]+\/\/[^/?]+)(?:\/([^?]*))?(?:\?(.*))?$/.exec(uri) ?? []
  const options = query.split('&').filter((option) => option !== '')
  if (server.includes('@') && !/authSource=/i.test(query)) options.push(`authSource=${path || 'admin'}`)
  return `${server}/${name}${options.length > 0 ? `?${options.join('&')}` : ''}`
}

/** An empty database with a name of its own. Whoever takes one drops it: see `useDatabase`. */
export async function testDatabase(serverUri = testServerUri()): Promise<TestDatabase> {
  const name = `t_${randomBytes(8).toString('hex')}`
  const uri = withDatabase(serverUri, name)
  const client = await new MongoClient(uri, { serverSelectionTimeoutMS: 20_000 }).connect()
  const db = client.db(name)
  const drop = async () => {
    await db.dropDatabase().catch(() => undefined) // the test may have closed the client
    await client.close()
  }
  return { client, db, uri, drop }
}

/**
 * Gives each test of the enclosing `describe` (or file) an empty database: `const test = useDatabase()`, then `test.db` inside the
 * tests. On the run's server, unless the file has one of its own.
 */
export function useDatabase(serverUri = testServerUri): TestDatabase {
  let current: TestDatabase | undefined
  const now = () => {
    if (!current) throw new Error('the database exists inside tests and hooks only')
    return current
  }
  beforeEach(async () => {
    current = await testDatabase(serverUri())
  })
  afterEach(async () => {
    await current?.drop()
    current = undefined
  })
  return {
    get client() {
      return now().client
    },
    get db() {
      return now().db
    },
    get uri() {
      return now().uri
    },
    drop: () => now().drop(),
  }
}

let patienceMs = 25_000

/** A longer default for `eventually` in this test file: for what other servers' controllers do, which leases have no part in. */
export function bePatient(ms: number): void {
  patienceMs = ms
}

/**
 * Calls `check` until it doesn't throw (and doesn't resolve to `false`), and resolves to its value; after `timeoutMs` its last error is
 * thrown. The default is far more than anything takes on a busy machine, and less than the default lockTimeout of 30 s: what
 * goes on only because a lease has run out fails. It asks ever more seldom, as what takes long needs the processor itself: the
 * pause is an eighth of what it has waited, within 10 and 100 ms, or `everyMs`.
 */
export async function eventually<T>(
  check: () => T | Promise<T>,
  { timeoutMs = patienceMs, everyMs }: { timeoutMs?: number; everyMs?: number } = {},
): Promise<T> {
  const begin = systemClock.monotonicMs()
  for (;;) {
    try {
      const value = await check()
      if (value !== false) return value
      throw new Error(`expected the condition to become true within ${timeoutMs} ms, it stayed false`)
    } catch (error) {
      if (systemClock.monotonicMs() - begin >= timeoutMs) throw error
    }
    const waitedMs = systemClock.monotonicMs() - begin
    await sleep(everyMs ?? Math.min(100, Math.max(10, waitedMs / 8)))
  }
}
