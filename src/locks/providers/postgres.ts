import { freedToken, releasedToken } from '../acquisition.js'
import { bounded } from '../bounded.js'
import { InvalidLockConfig, InvalidLockProvider } from '../errors.js'
import type { LockRecord } from '../lock-provider.js'
import type { Granted, LockStore, Request } from '../lock-store.js'
import { SeenRecords } from './seen-records.js'
import { grantedIn, recordIn, type SqlRow } from './sql-records.js'

/** The part of a `pg` pool that is used here. Each query must be its own transaction: a client inside a transaction won't work. */
export interface PostgresPool {
  /** Runs SQL with `$1`, `$2`, ... for the values; without values it may contain several statements. */
  query(
    text: string,
    values?: unknown[],
  ): Promise<{
    /** One object per row, with its columns by name. */
    rows: unknown[]
  }>
}

export interface PostgresStoreOptions {
  /** Default: ShedLock's own, `shedlock`; `schema.table` is possible. */
  readonly table?: string | undefined
  /** True to create a missing table or fence column when it is first needed (requires the right to do so). Default true. */
  readonly migrate?: boolean | undefined
  readonly answerWithinMs?: number | undefined
  readonly onClose?: () => Promise<void>
}

type Row = SqlRow & { readonly held?: boolean }

/** ShedLock's table has no time zones: its times are UTC, as ShedLock's `usingDbTime()` writes them. */
const NOW = "timezone('utc', clock_timestamp())"
const MISSING = new Set(['42P01', '42703', '3F000'])
const SERIALIZATION = new Set(['40001', '40P01'])
const TOO_LONG = '22001'
const NO_RIGHT = '42501'
const LIST_LIMIT = 10_000
const ATTEMPTS = 10

const after = (parameter: string) => `${NOW} + make_interval(secs => ${parameter}::numeric / 1000)`
const FENCE_OF_NOW = '(floor(extract(epoch from clock_timestamp()) * 1000) * 1000)::bigint'
const epochMs = (column: string) => `floor(extract(epoch from ${column}) * 1000)::bigint::text`
const RETURNING = `${epochMs('locked_at')} AS at, ${epochMs('lock_until')} AS until, fence::text AS fence`

/** The SQL of the migration. An operator can paste it if the process has no DDL rights; running it again changes nothing. */
function migration(table: string): string {
  return `CREATE TABLE IF NOT EXISTS ${table} (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL);
ALTER TABLE ${table} ADD COLUMN IF NOT EXISTS fence BIGINT;`
}

/**
 * Locks in PostgreSQL, in ShedLock's table with an added column `fence`, which Java leaves alone:
 * 1. a name seen for the first time: insert, or on conflict update if it is free; 2. later: update if it is free;
 * 3. unlock and extend: update if locked_by is ours and lock_until is in the future; 4. always by the database's clock.
 */
export class PostgresLockStore implements LockStore {
  readonly kind = 'postgres'
  private readonly table: string
  private readonly seen = new SeenRecords()

  constructor(
    private readonly pool: PostgresPool,
    private readonly options: PostgresStoreOptions = {},
  ) {
    this.table = options.table ?? 'shedlock'
    if (!/^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$/.test(this.table))
      throw new InvalidLockProvider(`table: expected a name such as shedlock or app.shedlock, got '${this.table}'`)
  }

  take({ name, token, lockAtMostForMs, reentrySuffix }: Request): Promise<Granted | undefined> {
    const values = [name, lockAtMostForMs, token, reentrySuffix ?? null]
    const grantedBy = async (sql: string) => {
      const [taken] = await this.rows(`${sql} ${this.taking} RETURNING ${RETURNING}`, values)
      return taken && grantedIn(taken)
    }
    const insert = `INSERT INTO ${this.table} AS t (name, lock_until, locked_at, locked_by, fence)
      VALUES ($1, ${after('$2')}, ${NOW}, $3, ${FENCE_OF_NOW}) ON CONFLICT (name) DO UPDATE`
    return this.seen.take(name, {
      update: () => grantedBy(`UPDATE ${this.table} AS t`),
      exists: async () => (await this.rows(`SELECT 1 FROM ${this.table} WHERE name = $1`, [name])).length > 0,
      insert: () => grantedBy(insert),
    })
  }

  /** PostgreSQL evaluates the condition again under the row lock: of two updates waiting for it only the first matches. */
  private readonly taking = `SET lock_until = ${after('$2')}, locked_at = ${NOW}, locked_by = $3,
    fence = greatest(coalesce(t.fence, 0) + 1, ${FENCE_OF_NOW})
    WHERE t.name = $1 AND (t.lock_until <= ${NOW}
      OR ($4::text IS NOT NULL AND position('|' in t.locked_by) > 0 AND substr(t.locked_by, position('|' in t.locked_by)) = $4))`

  async free(name: string, token: string, atLeastMs: number): Promise<boolean> {
    const sql = `UPDATE ${this.table} SET locked_by = $3,
      lock_until = greatest(${NOW}, least(locked_at, ${NOW}) + make_interval(secs => $4::numeric / 1000))
      WHERE name = $1 AND locked_by = $2 AND lock_until > ${NOW} RETURNING 1`
    return (await this.retried(sql, [name, token, releasedToken(token), atLeastMs])).length === 1
  }

  async extend(name: string, token: string, atMostMs: number, atLeastMs: number): Promise<Date | undefined> {
    const sql = `UPDATE ${this.table}
      SET lock_until = greatest(${after('$3')}, least(locked_at, ${NOW}) + make_interval(secs => $4::numeric / 1000))
      WHERE name = $1 AND locked_by = $2 AND lock_until > ${NOW} RETURNING ${RETURNING}`
    const [extended] = await this.retried(sql, [name, token, atMostMs, atLeastMs])
    return extended && grantedIn(extended).lockUntil
  }

  async find(name: string): Promise<LockRecord | undefined> {
    const [found] = await this.retried(`${this.select} WHERE name = $1`, [name])
    return found && recordOf(found)
  }

  async holders(names: readonly string[]): Promise<Map<string, string>> {
    const sql = `SELECT name, locked_by FROM ${this.table} WHERE name = ANY($1::text[]) AND lock_until > ${NOW}`
    return new Map((await this.retried(sql, [[...names]])).map(({ name, locked_by }) => [name!, locked_by!]))
  }

  async list(heldOnly: boolean): Promise<LockRecord[]> {
    const where = heldOnly ? `WHERE lock_until > ${NOW}` : ''
    return (await this.retried(`${this.select} ${where} ORDER BY name LIMIT ${LIST_LIMIT}`, [])).map(recordOf)
  }

  async release({ name, lockedBy }: LockRecord): Promise<boolean> {
    const sql = `UPDATE ${this.table} SET lock_until = ${NOW}, locked_by = $3
      WHERE name = $1 AND locked_by = $2 AND lock_until > ${NOW} RETURNING 1`
    return (await this.retried(sql, [name, lockedBy, freedToken(lockedBy!)])).length === 1
  }

  async close(): Promise<void> {
    await this.options.onClose?.()
  }

  /** Creates the table and the fence's column if they are missing. Any number of processes may do it concurrently. */
  async migrate(): Promise<void> {
    // One simple query is one transaction; the advisory lock keeps two of them from racing on the catalog.
    const sql = `SELECT pg_advisory_xact_lock(hashtext('phaselock:${this.table}')); ${migration(this.table)}`
    await bounded(this.pool.query(sql), this.options.answerWithinMs)
  }

  private get select(): string {
    return `SELECT name, locked_by, ${RETURNING}, lock_until > ${NOW} AS held FROM ${this.table}`
  }

  /** A serialization error means that two callers wanted the lock at the same moment and the other one got it. */
  private async rows(sql: string, values: unknown[]): Promise<Row[]> {
    try {
      return await this.query(sql, values)
    } catch (error) {
      if (SERIALIZATION.has(codeOf(error))) return []
      throw error
    }
  }

  private async retried(sql: string, values: unknown[]): Promise<Row[]> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.query(sql, values)
      } catch (error) {
        if (attempt === ATTEMPTS || !SERIALIZATION.has(codeOf(error))) throw error
      }
    }
  }

  private async query(sql: string, values: unknown[]): Promise<Row[]> {
    try {
      return await this.ask(sql, values)
    } catch (error) {
      if (codeOf(error) === TOO_LONG)
        throw new InvalidLockConfig(`'${String(values[0])}'`, [
          `name: expected one that fits into the column ${this.table}.name (64 characters in ShedLock's table), got ${String(values[0]).length}`,
        ])
      if (!MISSING.has(codeOf(error))) throw error
      if (this.options.migrate === false) throw this.notMigrated(error)
      await this.migrate().catch((cause) =>
        Promise.reject(codeOf(cause) === NO_RIGHT ? this.notMigrated(cause) : cause),
      )
      return await this.ask(sql, values)
    }
  }

  private notMigrated(cause: unknown): InvalidLockProvider {
    return new InvalidLockProvider(
      `expected the table ${this.table} with ShedLock's columns and fence, got: ${(cause as Error).message}; run this as a user who may change tables:\n${migration(this.table)}`,
      { cause },
    )
  }

  private async ask(sql: string, values: unknown[]): Promise<Row[]> {
    return (await bounded(this.pool.query(sql, values), this.options.answerWithinMs)).rows as Row[]
  }
}

const codeOf = (error: unknown): string => String((error as { code?: unknown }).code)

const recordOf = (row: Row): LockRecord => recordIn(row, row.held === true)
