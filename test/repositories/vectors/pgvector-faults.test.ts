import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Pool } from 'pg'
import { type PoolLike, pgvector, type VectorStore } from '../../../packages/repositories/src/vectors/index.js'
import { Unavailable } from '../../../src/index.js'
import { type PostgresServer, startPostgres } from '../../../tools/servers/postgres.mjs'
import { ServerMissing } from '../../../tools/servers/server-missing.mjs'
import { describeWith } from '../../support/describe-with.js'
import { point, SPEC } from './conformance.js'
import { openPglite } from './pglite.js'

let pool: PoolLike
let store: VectorStore
let close: () => Promise<void>
beforeAll(async () => {
  ;({ pool, close } = await openPglite())
  store = pgvector(pool)
}, 240_000)
afterAll(async () => await close?.())

test('a table of another program is left alone', async () => {
  await pool.query('create table theirs (id int)')
  const refused = { name: 'NotOurCollection', message: expect.stringMatching(/no comment that begins with/) }
  await expect(store.create('theirs', SPEC)).rejects.toMatchObject(refused)
  await expect(store.drop('theirs')).rejects.toMatchObject(refused)
  expect((await pool.query('select count(*)::int as n from theirs')).rows).toEqual([{ n: 0 }])
})

test('collections of one name in two schemas are two, and names are quoted', async () => {
  await pool.query('create schema "My ""schema"')
  const other = pgvector(pool, { schema: 'My "schema' })
  for (const name of ['Code', 'code', 'select', 'a.b-c', 'x'.repeat(63), `${'x'.repeat(62)}y`]) {
    await store.create(name, SPEC)
    await other.create(name, { ...SPEC, model: 'another' })
    await store.upsert(name, [point('a.ts')], { fence: 1 })
    expect([await store.count(name), await other.count(name)]).toEqual([1, 0])
    expect((await other.describe(name))!.model).toBe('another')
  }
})

test('deleting the files of one batch uses the index on their paths', async () => {
  await store.create('many', SPEC)
  await pool.query(`insert into many select gen_random_uuid(), '[1,0,0,0]', 1, 'r' || (i % 50), 'src/' || i || '.ts', 'b', 'h', 1, 2, ''
    from generate_series(1, 5000) as i`)
  await pool.query('analyze many')
  for (const filter of ["path = any('{src/7.ts,src/8.ts}')", "(path = 'src/7' or starts_with(path, 'src/7' || '/'))"]) {
    const sql = `explain select id from many where repository = 'r7' and ${filter}`
    const plan = JSON.stringify((await pool.query(sql)).rows)
    expect(plan).toMatch(/Index Scan/)
  }
})

const describe = await describeWith(
  'PostgreSQL',
  async () => await (await startPostgres({ durable: false })).stop(),
  ServerMissing,
)
describe('a PostgreSQL without pgvector', () => {
  let server: PostgresServer
  let real: Pool
  beforeAll(async () => {
    server = await startPostgres({ durable: false })
    real = new Pool({ connectionString: server.url, connectionTimeoutMillis: 5_000 })
    real.on('error', () => undefined)
  }, 240_000)
  afterAll(async () => {
    await real?.end()
    await server?.stop()
  })

  test('is refused with what to install; away, it makes the sync wait', async () => {
    const on = pgvector(real)
    expect(await on.describe('code')).toBeUndefined()
    await expect(on.count('code')).rejects.toMatchObject({ name: 'CollectionMissing' })
    const refused = on.create('code', SPEC)
    await expect(refused).rejects.toMatchObject({ name: 'VectorStoreRefused' })
    await expect(refused).rejects.toThrow(/install pgvector on the server/)
    const hanging = pgvector(real, { answerWithin: '200ms' })
    await real.query('create table "locked" (id int)')
    const client = await real.connect()
    await client.query('begin; lock table "locked" in access exclusive mode')
    await expect(hanging.count('locked')).rejects.toThrow(/no answer within 200ms/)
    await client.query('rollback')
    client.release()
    await server.kill9()
    await expect(on.count('code')).rejects.toThrow(Unavailable)
    await expect(on.describe('code')).rejects.toThrow(/ECONNREFUSED/)
  })
})
