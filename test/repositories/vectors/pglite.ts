import { PGlite } from '@electric-sql/pglite'
import { vector } from '@electric-sql/pglite-pgvector'
import type { PoolLike } from '../../../packages/repositories/src/vectors/index.js'

/** PostgreSQL with pgvector in this process, through the method of `pg`'s pool. It has one connection, so its statements run one by one. */
export async function openPglite(): Promise<{ pool: PoolLike; close(): Promise<void> }> {
  const database = await PGlite.create({ extensions: { vector } })
  return { pool: { query: (sql, values) => database.query(sql, values) }, close: () => database.close() }
}
