import { afterEach, expect, jest, test } from '@jest/globals'
import { Pool } from 'pg'
import { InvalidLockConfig, InvalidLockProvider } from '../../src/locks/errors.js'
import { openLockProvider } from '../../src/locks/open-provider.js'
import { startPostgres } from '../../tools/servers/postgres.mjs'

jest.setTimeout(240_000)

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

test("a user without rights on the schema is shown the SQL; after that, and on Java's own table, a fence is all that is added", async () => {
  const server = await startPostgres({ durable: false })
  closing.push(() => server.stop())
  const admin = new Pool({ connectionString: server.url })
  admin.on('error', () => undefined)
  closing.push(() => admin.end())
  await admin.query("CREATE ROLE app LOGIN PASSWORD 'app'")
  const url = new URL(server.url)
  url.username = url.password = 'app'
  const config = { name: 'report', lockAtMostFor: '1h' }
  const open = async (more: object = {}) => {
    const provider = await openLockProvider({ url: url.href, env: {}, ...more })
    closing.push(() => provider.close())
    return provider
  }

  const refused = (await open()).lock(config)
  await expect(refused).rejects.toThrow(InvalidLockProvider)
  const { message } = (await refused.catch((error) => error)) as Error
  expect(message).toMatch(
    /permission denied for schema public; run this as a user who may change tables:\nCREATE TABLE IF NOT EXISTS shedlock/,
  )
  const wanting = (await open({ migrate: false })).lock(config)
  await expect(wanting).rejects.toThrow(
    /relation "shedlock" does not exist; run this as a user who may change tables:\nCREATE TABLE/,
  )

  // What Java has made, with a lock that is held, and then the SQL that was shown.
  await admin.query(
    'CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)',
  )
  await admin.query(
    "INSERT INTO shedlock VALUES ('java', timezone('utc', now()) + interval '1h', timezone('utc', now()), 'host')",
  )
  await admin.query('GRANT SELECT, INSERT, UPDATE ON shedlock TO app')
  await expect((await open()).lock(config)).rejects.toThrow(
    /permission denied for schema public; run this as a user who may change tables/,
  )
  await admin.query(message.slice(message.indexOf('CREATE TABLE')))
  const provider = await open({ migrate: false })
  expect(await provider.lock({ ...config, name: 'java' })).toBeUndefined()
  expect(await (await provider.lock(config))?.unlock()).toBe(true)
  await expect(provider.lock({ ...config, name: 'x'.repeat(65) })).rejects.toThrow(InvalidLockConfig)
})
