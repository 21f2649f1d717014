import type { VectorDriver } from './driver.js'
import { CollectionMissing, NotOurCollection } from './errors.js'
import { problemOf } from './pg-problems.js'
import { columnsOf, createCollection, tableOf, whereOf } from './pgvector-sql.js'
import { type StoreOptions, storeOf } from './store-of.js'
import type { CollectionSpec, PointFilter, StoredPoint, VectorStore } from './vector-store.js'

/** A `Pool` of `pg`, by the method used here. */
export interface PoolLike {
  query(
    sql: string,
    values?: unknown[],
  ): Promise<{ readonly rows: readonly unknown[]; readonly rowCount?: number | null }>
}

/** Options of `pgvector`. */
export interface PgvectorOptions extends StoreOptions {
  /** The schema of the tables. Default: the first one of the connection's search path. It must exist. */
  readonly schema?: string | undefined
}

/**
 * Vectors in PostgreSQL with the extension pgvector: a table for each collection. It needs one pool, which stays yours. The first collection creates the
 * extension where it is missing, which needs the right to do so. Queries are exact: they look at each point that the filter leaves.
 * @example
 * ```ts
 * import { Pool } from 'pg'
 *
 * const store = pgvector(new Pool({ connectionString: process.env.DATABASE_URL }))
 * ```
 */
export function pgvector(pool: PoolLike, options: PgvectorOptions = {}): VectorStore {
  const { schema, ...others } = options
  return storeOf(new PgvectorDriver(pool, schema), others)
}

const COMMENT = 'phaselock-repositories '
const ALREADY_THERE = new Set(['23505', '42P07', '42710'])
const MISSING = '42P01'

type Row = StoredPoint & { readonly fence: number | string; readonly score?: number }

class PgvectorDriver implements VectorDriver {
  readonly kind = 'pgvector'
  constructor(
    private readonly pool: PoolLike,
    private readonly schema: string | undefined,
  ) {}

  async describe(collection: string): Promise<CollectionSpec | undefined> {
    const sql = `select obj_description(to_regclass($1), 'pg_class') as comment, to_regclass($1) is not null as found`
    const [row] = (await this.ask(collection, sql, [this.table(collection)])) as { comment: string; found: boolean }[]
    if (!row?.found) return undefined
    if (!row.comment?.startsWith(COMMENT))
      throw new NotOurCollection(this.kind, collection, `its table has no comment that begins with '${COMMENT.trim()}'`)
    const { model, dimensions, chunker } = JSON.parse(row.comment.slice(COMMENT.length)) as CollectionSpec
    return { model, dimensions, chunker }
  }

  async create(collection: string, { model, dimensions, chunker }: CollectionSpec): Promise<void> {
    const comment = COMMENT + JSON.stringify({ model, dimensions, chunker })
    const sql = createCollection(this.table(collection), dimensions, comment)
    const make = () => this.ask(collection, sql)
    // `if not exists` of two callers may still collide; the second try finds what the first caller has made.
    await make().catch((error) => (ALREADY_THERE.has(codeOf(error)) ? make() : Promise.reject(error)))
  }

  async drop(collection: string): Promise<void> {
    // Not `drop table` alone: a table that isn't ours stays.
    if (await this.describe(collection)) await this.ask(collection, `drop table if exists ${this.table(collection)}`)
  }

  async upsert(...[collection, points, fence]: Parameters<VectorDriver['upsert']>): Promise<void> {
    const table = this.table(collection)
    const rows = points.map(({ vector, ...point }) => ({ ...columnsOf(point, fence), vector: literal(vector) }))
    const sql = `
      insert into ${table} as stored (id, vector, fence, repository, path, blob, hash, from_line, to_line, text)
      select id, vector::vector, fence, repository, path, blob, hash, from_line, to_line, text
      from jsonb_to_recordset($1::jsonb) as given (id uuid, vector text, fence bigint, repository text, path text, blob text,
        hash text, from_line int, to_line int, text text)
      on conflict (id) do update set (vector, fence, repository, path, blob, hash, from_line, to_line, text) = (excluded.vector,
        excluded.fence, excluded.repository, excluded.path, excluded.blob, excluded.hash, excluded.from_line, excluded.to_line,
        excluded.text)
      where stored.fence <= excluded.fence`
    await this.ask(collection, sql, [JSON.stringify(rows)])
  }

  async delete(...[collection, filter, fence]: Parameters<VectorDriver['delete']>): Promise<void> {
    const { where, values } = whereOf(filter, 'fence <= $1', [fence])
    await this.ask(collection, `delete from ${this.table(collection)} ${where}`, values)
  }

  async query(...[collection, vector, limit, filter]: Parameters<VectorDriver['query']>) {
    const { where, values } = whereOf(filter, 'true', [literal(vector), limit])
    const sql = `select ${POINT}, 1 - (vector <=> $1::vector) as score from ${this.table(collection)} ${where}
      order by vector <=> $1::vector, id limit $2`
    // A vector without a direction has no distance: NaN.
    return ((await this.ask(collection, sql, values)) as Row[]).map((row) => ({
      ...pointIn(row),
      score: row.score || 0,
    }))
  }

  async count(collection: string, filter: PointFilter): Promise<number> {
    const { where, values } = whereOf(filter, 'true', [])
    const sql = `select count(*)::int as count from ${this.table(collection)} ${where}`
    return ((await this.ask(collection, sql, values)) as { count: number }[])[0]!.count
  }

  async scroll(...[collection, filter, limit, after]: Parameters<VectorDriver['scroll']>) {
    const first = '00000000-0000-0000-0000-000000000000'
    const { where, values } = whereOf(filter, 'id > $1', [after ?? first, limit + 1])
    const sql = `select ${POINT} from ${this.table(collection)} ${where} order by id limit $2`
    const points = ((await this.ask(collection, sql, values)) as Row[]).map(pointIn)
    return { points: points.slice(0, limit), next: points.length > limit ? points[limit - 1]!.id : undefined }
  }

  private table(collection: string): string {
    return tableOf(this.schema, collection)
  }

  private async ask(collection: string, sql: string, values?: unknown[]): Promise<readonly unknown[]> {
    try {
      return (await this.pool.query(sql, values)).rows
    } catch (error) {
      if (codeOf(error) === MISSING) throw new CollectionMissing(this.kind, collection)
      throw problemOf(error, this.kind, collection)
    }
  }
}

const POINT = 'id::text, fence, repository, path, blob, hash, from_line as "fromLine", to_line as "toLine", text'

const codeOf = (error: unknown): string => {
  const { code, cause } = error as { code?: unknown; cause?: { code?: unknown } }
  return String(code ?? cause?.code)
}

/** Numbers as pgvector reads them. */
const literal = (vector: ArrayLike<number>): string => `[${Array.from(vector).join(',')}]`

/** `pg` gives a bigint as text. */
const pointIn = ({ score: _, fence, ...row }: Row): StoredPoint => ({ ...row, fence: Number(fence) })
