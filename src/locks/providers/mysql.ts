import { processMs } from '../../time/index.js'
import { freedToken, releasedToken } from '../acquisition.js'
import { bounded } from '../bounded.js'
import { InvalidLockConfig, InvalidLockProvider } from '../errors.js'
import type { LockRecord } from '../lock-provider.js'
import type { Granted, LockStore, Request } from '../lock-store.js'
import { SeenRecords } from './seen-records.js'
import { grantedIn, recordIn, type SqlRow } from './sql-records.js'

/** The part of a pool of `mysql2` (`mysql2/promise`) or `mariadb` that is used here. Each statement must be its own transaction. */
export interface MysqlPool {
  /** Not called: both clients' pools have it, and pools of other databases don't. */
  execute: unknown
  /** Takes a connection out of the pool. Its `execute` runs one prepared statement with `?` for the values. */
  getConnection(): Promise<{
    execute(sql: string, values?: string[]): Promise<unknown>
    release(): unknown
    destroy(): unknown
  }>
}

export interface MysqlStoreOptions {
  /** Default: ShedLock's own, `shedlock`; `database.table` is possible. */
  readonly table?: string | undefined
  /** True to create a missing table or fence column when it is first needed (requires the right to do so). Default true. */
  readonly migrate?: boolean | undefined
  readonly answerWithinMs?: number | undefined
  readonly onClose?: () => Promise<void>
}

type Row = SqlRow & { readonly held?: string | null }

/** ShedLock's table has no time zones: its times are UTC, as ShedLock's `usingDbTime()` writes them. */
const NOW = 'UTC_TIMESTAMP(3)'
const NO_TABLE = 1146
const NO_COLUMN = 1054
const HAS_COLUMN = 1060
const DUPLICATE = 1062
const DEADLOCK = 1213
const NO_RIGHT = new Set([1044, 1142])
const LIST_LIMIT = 10_000
const ATTEMPTS = 10
/** Errors of every day, after which a connection is as good as before. */
const HARMLESS = new Set([DEADLOCK, DUPLICATE])
/** The name's column in ShedLock's table. A server that isn't in strict mode would cut a longer name, and grant two locks as one. */
const MOST_NAME = 64

const plus = (time: string) => `TIMESTAMPADD(MICROSECOND, CAST(? AS DECIMAL(20)) * 1000, ${time})`
const FENCE_OF_NOW = `FLOOR(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${NOW}) / 1000) * 1000`
/** As text: the clients read times in zones of their own, and large numbers as they are configured. */
const epochMs = (column: string) => `CAST(FLOOR(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ${column}) / 1000) AS CHAR)`
const COLUMNS = `${epochMs('locked_at')} AS at, ${epochMs('lock_until')} AS until, CAST(fence AS CHAR) AS fence`
const MINE = `name = ? AND locked_by = ? AND lock_until > ${NOW}`

/**
 * The statements of the migration. Running them again changes nothing, apart from the error that the column is there. DATETIME, where ShedLock documents
 * TIMESTAMP: it has no hour that a change to summer time skips, and Java's statements are the same. Names differ when any byte does.
 */
const migration = (table: string): string[] => [
  `CREATE TABLE IF NOT EXISTS ${table} (name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, PRIMARY KEY (name))`,
  `ALTER TABLE ${table} ADD COLUMN fence BIGINT`,
]

/**
 * Locks in MySQL or MariaDB, in ShedLock's table with an added column `fence`, which Java leaves alone:
 * 1. a name seen for the first time: insert, or on a duplicate update if it is free; 2. later: update if it is free;
 * 3. unlock and extend: update if locked_by is ours and lock_until is in the future; 4. always by the database's clock.
 * There is no RETURNING: what an update has written is read back by its token, which no other acquisition has. A proxy that sends reads to a replica which
 * lags behind doesn't find it: that is an error, so that the lock is freed, and not a refusal, which would leave it to nobody.
 */
export class MysqlLockStore implements LockStore {
  readonly kind = 'mysql'
  private readonly table: string
  private readonly seen = new SeenRecords()

  constructor(
    private readonly pool: MysqlPool,
    private readonly options: MysqlStoreOptions = {},
  ) {
    this.table = options.table ?? 'shedlock'
    if (!/^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$/.test(this.table))
      throw new InvalidLockProvider(`table: expected a name such as shedlock or app.shedlock, got '${this.table}'`)
  }

  async take({ name, token, lockAtMostForMs, reentrySuffix }: Request): Promise<Granted | undefined> {
    if ([...name].length > MOST_NAME)
      throw new InvalidLockConfig(`'${name}'`, [
        `name: expected at most ${MOST_NAME} characters, as in ShedLock's table, got ${[...name].length}`,
      ])
    const update = () =>
      this.written(
        `UPDATE ${this.table} SET lock_until = ${plus(NOW)}, locked_at = ${NOW}, locked_by = ?,
          fence = GREATEST(COALESCE(fence, 0) + 1, ${FENCE_OF_NOW})
        WHERE name = ? AND (lock_until <= ${NOW}
          OR (INSTR(locked_by, '|') > 0 AND BINARY SUBSTR(locked_by, INSTR(locked_by, '|')) = BINARY ?))`,
        [String(lockAtMostForMs), token, name, reentrySuffix ?? ''],
        { name, token, lockAtMostForMs },
      )
    const insert = () =>
      this.written(
        `INSERT INTO ${this.table} (name, lock_until, locked_at, locked_by, fence)
        VALUES (?, ${plus(NOW)}, ${NOW}, ?, ${FENCE_OF_NOW})`,
        [name, String(lockAtMostForMs), token],
        { name, token, lockAtMostForMs },
      )
    return await this.seen.take(name, {
      update,
      exists: async () => (await this.rows(`SELECT 1 AS found FROM ${this.table} WHERE name = ?`, [name])).length > 0,
      insert: async () => (await insert()) ?? (await update()),
    })
  }

  async free(name: string, token: string, atLeastMs: number): Promise<boolean> {
    const sql = `UPDATE ${this.table} SET locked_by = ?, lock_until = GREATEST(${NOW}, ${plus(`LEAST(locked_at, ${NOW})`)}) WHERE ${MINE}`
    return (await this.changed(sql, [releasedToken(token), String(atLeastMs), name, token])) === 1
  }

  async extend(name: string, token: string, atMostMs: number, atLeastMs: number): Promise<Date | undefined> {
    const sql = `UPDATE ${this.table} SET lock_until = GREATEST(${plus(NOW)}, ${plus(`LEAST(locked_at, ${NOW})`)}) WHERE ${MINE}`
    const sentMs = processMs()
    const changed = await this.changed(sql, [String(atMostMs), String(atLeastMs), name, token])
    const extended = await this.readBack(name, token)
    if (!extended && changed > 0) this.requireOver(sentMs, atMostMs)
    return extended?.lockUntil
  }

  async find(name: string): Promise<LockRecord | undefined> {
    const [found] = await this.rows(`${this.select} WHERE name = ?`, [name])
    return found && recordOf(found)
  }

  async holders(names: readonly string[]): Promise<Map<string, string>> {
    if (names.length === 0) return new Map()
    const sql = `SELECT name, locked_by FROM ${this.table} WHERE name IN (${names.map(() => '?').join(', ')}) AND lock_until > ${NOW}`
    return new Map((await this.rows(sql, [...names])).map(({ name, locked_by }) => [name!, locked_by!]))
  }

  async list(heldOnly: boolean): Promise<LockRecord[]> {
    const where = heldOnly ? `WHERE lock_until > ${NOW}` : ''
    return (await this.rows(`${this.select} ${where} ORDER BY name LIMIT ${LIST_LIMIT}`, [])).map(recordOf)
  }

  async release({ name, lockedBy }: LockRecord): Promise<boolean> {
    const sql = `UPDATE ${this.table} SET lock_until = ${NOW}, locked_by = ? WHERE ${MINE}`
    return (await this.changed(sql, [freedToken(lockedBy!), name, lockedBy!])) === 1
  }

  async close(): Promise<void> {
    await this.options.onClose?.()
  }

  /** Creates the table and the fence's column if they are missing. Any number of processes may do it concurrently. */
  async migrate(): Promise<void> {
    const [create, addFence] = migration(this.table)
    await this.ask(create!, [])
    await this.ask(addFence!, []).catch((error) => {
      if (numberOf(error) !== HAS_COLUMN) throw error
    })
  }

  private get select(): string {
    return `SELECT name, locked_by, ${COLUMNS}, CAST(lock_until > ${NOW} AS CHAR) AS held FROM ${this.table}`
  }

  /** A deadlock means that two callers wanted the lock at the same moment and the other one got it; so does a duplicate name. */
  private async written(
    sql: string,
    values: string[],
    { name, token, lockAtMostForMs }: Pick<Request, 'name' | 'token' | 'lockAtMostForMs'>,
  ): Promise<Granted | undefined> {
    const sentMs = processMs()
    try {
      const { affectedRows } = (await this.query(sql, values)) as { affectedRows: number }
      if (affectedRows === 0) return undefined
    } catch (error) {
      if (numberOf(error) === DEADLOCK || numberOf(error) === DUPLICATE) return undefined
      throw error
    }
    const granted = await this.readBack(name, token)
    if (!granted) this.requireOver(sentMs, lockAtMostForMs)
    return granted
  }

  private async readBack(name: string, token: string): Promise<Granted | undefined> {
    const [mine] = await this.rows(`SELECT ${COLUMNS} FROM ${this.table} WHERE ${MINE}`, [name, token])
    return mine && grantedIn(mine)
  }

  /** @throws Error unless what was written may have expired before it was read: the server's times are whole milliseconds */
  private requireOver(sentMs: number, atMostMs: number): void {
    if (processMs() - sentMs < atMostMs - 1)
      throw new Error(
        `expected to read the row of ${this.table} that was just written, got none; send all statements to the primary, reads too`,
      )
  }

  private async rows(sql: string, values: string[]): Promise<Row[]> {
    return (await this.retried(sql, values)) as Row[]
  }

  private async changed(sql: string, values: string[]): Promise<number> {
    return ((await this.retried(sql, values)) as { affectedRows: number }).affectedRows
  }

  private async retried(sql: string, values: string[]): Promise<unknown> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.query(sql, values)
      } catch (error) {
        if (attempt === ATTEMPTS || numberOf(error) !== DEADLOCK) throw error
      }
    }
  }

  private async query(sql: string, values: string[]): Promise<unknown> {
    try {
      return await this.ask(sql, values)
    } catch (error) {
      if (numberOf(error) !== NO_TABLE && numberOf(error) !== NO_COLUMN) throw error
      if (this.options.migrate === false) throw this.notMigrated(error)
      await this.migrate().catch((cause) =>
        Promise.reject(NO_RIGHT.has(numberOf(cause)) ? this.notMigrated(cause) : cause),
      )
      return await this.ask(sql, values)
    }
  }

  private notMigrated(cause: unknown): InvalidLockProvider {
    return new InvalidLockProvider(
      `expected the table ${this.table} with ShedLock's columns and fence, got: ${(cause as Error).message}; run this as a user who may change tables:\n${migration(this.table).join(';\n')};`,
      { cause },
    )
  }

  /** A connection that doesn't answer in time is destroyed: left checked out it would take up a place in the pool for as long as the server is silent. */
  private async ask(sql: string, values: string[]): Promise<unknown> {
    let isOver = false
    let connection: Awaited<ReturnType<MysqlPool['getConnection']>> | undefined
    const asked = async () => {
      connection = await this.pool.getConnection()
      return isOver ? connection.release() : await connection.execute(sql, values)
    }
    try {
      const answer = unwrapped(await bounded(asked(), this.options.answerWithinMs))
      connection?.release()
      return answer
    } catch (error) {
      isOver = true
      if (HARMLESS.has(numberOf(error))) connection?.release()
      else connection?.destroy()
      throw error
    }
  }
}

/** mysql2 answers [rows, fields], or [result, undefined]; mariadb answers the rows or the result alone. */
function unwrapped(answer: unknown): unknown {
  const ofMysql2 =
    Array.isArray(answer) && answer.length === 2 && (Array.isArray(answer[0]) || 'affectedRows' in answer[0])
  return ofMysql2 ? answer[0] : answer
}

/** The server's own number of an error: both clients have it. */
const numberOf = (error: unknown): number => Number((error as { errno?: unknown }).errno)

const recordOf = (row: Row): LockRecord => recordIn(row, row.held === '1')
