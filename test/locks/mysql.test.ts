import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { createPool, type Pool } from 'mysql2/promise'
import { holderIdentity } from '../../src/locks/acquisition.js'
import { LockProviderUnavailable } from '../../src/locks/errors.js'
import { NamedLocks } from '../../src/locks/named-locks.js'
import { openLockProvider } from '../../src/locks/open-provider.js'
import { MysqlLockStore, type MysqlPool } from '../../src/locks/providers/mysql.js'
import { type MariadbServer, startMariadb } from '../../tools/servers/mariadb.mjs'
import { ServerMissing } from '../../tools/servers/server-missing.mjs'
import { eventually } from '../support/database.js'
import { describeWith } from '../support/describe-with.js'

const describe = await describeWith('MariaDB', async () => await (await startMariadb()).stop(), ServerMissing)

describe('locks in MariaDB', () => {
  let server: MariadbServer
  let admin: Pool
  beforeAll(async () => {
    // A zone with a summer time, which the clients' sessions have.
    server = await startMariadb({ settings: { 'default-time-zone': '+09:00' } })
    admin = createPool({ uri: server.url })
  }, 240_000)
  afterAll(async () => {
    await admin?.end()
    await server?.stop()
  })
  const as = (user: string) => {
    const url = new URL(server.url)
    url.username = user
    return url.href
  }

  test('mysql2 and mariadb, by their URLs and as pools, share the same locks', async () => {
    const { createPool: mariadbPool } = await import('mariadb')
    const { host, port, user, password, database } = server
    const pool = mariadbPool({ host, port, user, password, database })
    const providers = await Promise.all([
      openLockProvider({ url: server.url, env: {} }),
      openLockProvider({ url: server.url.replace('mysql:', 'mariadb:'), env: {} }),
      openLockProvider({ client: admin, env: {} }),
      openLockProvider({ client: pool, env: {} }),
    ])
    for (const provider of providers) {
      const held = (await provider.lock({ name: 'shared', lockAtMostFor: '1h', lockAtLeastFor: '0ms' }))!
      for (const other of providers) {
        expect(await other.lock({ name: 'shared', lockAtMostFor: '1h' })).toBeUndefined()
        const record = {
          lockedBy: held.lockedBy,
          lockedAt: held.lockedAt,
          lockUntil: held.lockUntil,
          fence: held.fence,
        }
        expect(await other.find('shared')).toEqual({ ...record, name: 'shared', held: true, released: false })
        expect((await other.holders(['shared', 'another'])).get('shared')).toBe(held.lockedBy)
        expect(await other.list({ heldOnly: true })).toHaveLength(1)
      }
      expect(Math.abs(held.lockedAt.getTime() - Date.now())).toBeLessThan(60_000)
      const longer = (await held.extend('2h'))!
      expect(longer.lockUntil.getTime()).toBeGreaterThan(held.lockUntil.getTime())
      expect(await longer.unlock()).toBe(true)
    }
    for (const provider of providers) await provider.close()
    await pool.end()
  })

  test('the table that ShedLock documents gets its column, and is used as it is', async () => {
    await admin.execute(
      'CREATE TABLE theirs (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))',
    )
    await admin.execute(
      "INSERT INTO theirs VALUES ('java', TIMESTAMPADD(HOUR, 1, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), 'java-host')",
    )
    const provider = await openLockProvider({ client: admin, table: 'theirs', env: {} })
    expect(await provider.lock({ name: 'java', lockAtMostFor: '1h' })).toBeUndefined()
    expect(await provider.find('java')).toMatchObject({ lockedBy: 'java-host', held: true, fence: undefined })
    await Promise.all([1, 2, 3].map(() => provider.migrate()))
    const held = (await provider.lock({ name: 'ours', lockAtMostFor: '1h' }))!
    const [[row]] = (await admin.query(
      'SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP, lock_until) AS s FROM theirs WHERE name = ?',
      ['ours'],
    )) as any
    expect(Math.round(row.s / 60)).toBe(60)
    expect(await held.unlock()).toBe(true)
  })

  test('behind a proxy whose reads find nothing yet, a lock is freed again, and an extended one is not reported as lost', async () => {
    let isBehind = true
    const getConnection = async () => {
      const connection = await admin.getConnection()
      return {
        execute: async (sql: string, values: string[] = []) =>
          isBehind && sql.startsWith('SELECT') ? [[], []] : await connection.execute(sql, values),
        release: () => connection.release(),
        destroy: () => connection.destroy(),
      }
    }
    const provider = await openLockProvider({ client: { execute: () => 0, getConnection }, env: {} })
    const beside = await openLockProvider({ client: admin, env: {} })
    const config = { name: 'behind', lockAtMostFor: '1h' }
    await expect(provider.lock(config)).rejects.toThrow(/to read the row of shedlock that was just written, got none/)
    await eventually(async () => (await beside.find('behind'))?.held === false)
    isBehind = false
    const held = (await provider.lock(config))!
    isBehind = true
    await expect(held.extend('2h')).rejects.toThrow(LockProviderUnavailable)
    // Over before it could be read.
    expect(await provider.lock({ name: 'short', lockAtMostFor: '1ms' })).toBeUndefined()
    isBehind = false
    expect(await held.unlock()).toBe(true)
  })

  test.each(['mysql2', 'mariadb'])(
    '%s: a statement without an answer leaves no connection checked out',
    async (client) => {
      const { host, port, user, password, database } = server
      const settings = { host, port, user, password, database, connectionLimit: 1 }
      const pool: MysqlPool & { end(): Promise<void> } =
        client === 'mysql2' ? createPool(settings) : (await import('mariadb')).createPool(settings)
      const provider = new NamedLocks(new MysqlLockStore(pool, { answerWithinMs: 500 }), holderIdentity('slow'))
      const name = `slow ${client}`
      await (await provider.lock({ name, lockAtMostFor: '1h' }))!.unlock()
      const other = await admin.getConnection()
      try {
        await other.query('BEGIN')
        await other.query('SELECT 1 FROM shedlock WHERE name = ? FOR UPDATE', [name])
        await expect(provider.lock({ name, lockAtMostFor: '1h' })).rejects.toThrow(/no answer within 500 ms/)
        // One statement at a time wants the row again, in the background; others come between.
        const next = await eventually(() => pool.getConnection(), { timeoutMs: 10_000 })
        expect(await next.execute('SELECT 1')).toBeDefined()
        await next.release()
      } finally {
        await other.query('ROLLBACK')
        other.release()
      }
      await eventually(async () => await (await provider.lock({ name, lockAtMostFor: '1h' }))?.unlock())
      await provider.close()
      await pool.end()
    },
    // Less than the 50 s for which the server waits for a row.
    30_000,
  )

  test('a name that the column would cut is refused; names that differ in case are two', async () => {
    const provider = await openLockProvider({ client: admin, env: {} })
    const name = '한'.repeat(64)
    expect(await provider.lock({ name, lockAtMostFor: '1h' })).toMatchObject({ name })
    await expect(provider.lock({ name: `${name}x`, lockAtMostFor: '1h' })).rejects.toThrow(
      /at most 64 characters.*got 65/,
    )
    expect(await provider.lock({ name: 'Report', lockAtMostFor: '1h' })).toBeDefined()
    expect(await provider.lock({ name: 'report', lockAtMostFor: '1h' })).toBeDefined()
  })

  test('without the right to make the table it says what to run', async () => {
    await admin.query(`CREATE USER 'weak'@'127.0.0.1' IDENTIFIED BY '${server.password}'`)
    await admin.query(`GRANT SELECT, INSERT, UPDATE ON ${server.database}.* TO 'weak'@'127.0.0.1'`)
    for (const migrate of [true, false]) {
      const provider = await openLockProvider({ url: as('weak'), table: 'missing', migrate, env: {} })
      const refused = provider.lock({ name: 'a', lockAtMostFor: '1h' })
      await expect(refused).rejects.toMatchObject({ name: 'InvalidLockProvider' })
      await expect(refused).rejects.toThrow(
        /run this as a user who may change tables:\nCREATE TABLE IF NOT EXISTS missing/,
      )
      await provider.close()
    }
    await (await openLockProvider({ client: admin, table: 'missing', env: {} })).migrate()
    const provider = await openLockProvider({ url: as('weak'), table: 'missing', env: {} })
    expect(await provider.lock({ name: 'a', lockAtMostFor: '1h' })).toBeDefined()
    await provider.close()
  })
})
