import { BSON, type Collection, type Db } from 'mongodb'
import { LockExecutor, mongoLockProvider } from 'phaselock/locks'
import { protocolCollection } from 'phaselock/tasks'
import { lossInDocument } from '../store/codec.js'
import { NoRows, UnusableSource } from './errors.js'
import type { Row, RowSource, SourceRow } from './sources.js'

/** The collection of imported rows: a head for each import, and its batches. */
export const ROWS_COLLECTION = 'phaselock.rows'

/** The limits of a batch, of a name, and of the bad rows that a head shows. */
export const BATCH_ROWS = 1_000
const BATCH_BYTES = 8 * 1024 * 1024
const NAME = /^[\w.:-]{1,200}$/
const MOST_SHOWN = 20
/** An import whose process is gone can begin anew after this. */
const IMPORT_AT_MOST = '2m'

/** The state of an import. `_id`: `<name>`. */
export interface RowsHead {
  readonly _id: string
  readonly kind: string
  /** `importing` until all batches are stored. */
  readonly state: 'importing' | 'complete'
  /** The number of good rows, and of rows that couldn't be read. */
  readonly rows: number
  readonly bad: number
  readonly batches: number
  /** The first of the bad rows. */
  readonly badRows: readonly { readonly number: number; readonly problem: string; readonly cells?: unknown }[]
  readonly by: string
  readonly at: Date
}

/** `_id`: `<name>/<number of the batch>`. */
interface RowsBatch {
  readonly _id: string
  /** `[number in the source, row]`. */
  readonly rows: readonly (readonly [number, Row])[]
}

const headsOf = (db: Db): Collection<RowsHead> => protocolCollection<RowsHead>(db, ROWS_COLLECTION)
const batchesOf = (db: Db): Collection<RowsBatch> => protocolCollection<RowsBatch>(db, ROWS_COLLECTION)
const batchId = (name: string, batch: number): string => `${name}/${String(batch).padStart(8, '0')}`

/**
 * Stores the rows of a source under a name, once, in batches of 1,000 that every process can read. An import that was interrupted begins anew, one that
 * is complete isn't repeated.
 *
 * @example await importRows(db, 'orders-2026-11', csv('/data/orders.csv'), { by: 'ana' })
 * @returns the state of the import; of another process, if that was quicker
 * @throws UnusableSource
 */
export async function importRows(
  db: Db,
  name: string,
  source: RowSource,
  { by }: { readonly by: string },
): Promise<RowsHead> {
  if (typeof name !== 'string' || !NAME.test(name))
    throw new UnusableSource(
      `expected a name of 1 to 200 letters, digits, '-', '_', '.' and ':', got ${JSON.stringify(name)}`,
    )
  const complete = await completeRows(db, name)
  if (complete) return complete
  return await locked(
    db,
    name,
    async (signal) => (await completeRows(db, name)) ?? (await importNow(db, name, source, by, signal)),
  )
}

/** Works under the lock of an import. @throws UnusableSource if another process has it for an hour */
async function locked<T>(db: Db, name: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const locks = new LockExecutor(mongoLockProvider(db))
  const options = { name: `rows:${name}`, lockAtMostFor: IMPORT_AT_MOST, waitFor: '1h', watchdog: true } as const
  const outcome = await locks.executeWithLock(({ signal }) => work(signal), options)
  if (outcome.executed) return outcome.result
  throw new UnusableSource(
    `expected the import of ${name} by ${outcome.heldBy ?? 'another process'} to end within an hour; look at ${ROWS_COLLECTION}`,
  )
}

async function completeRows(db: Db, name: string): Promise<RowsHead | undefined> {
  const head = await headsOf(db).findOne({ _id: name })
  return head?.state === 'complete' ? head : undefined
}

async function importNow(db: Db, name: string, source: RowSource, by: string, signal: AbortSignal): Promise<RowsHead> {
  await removeBatches(db, name)
  const seen = { rows: 0, bad: 0, batches: 0, badRows: [] as { number: number; problem: string; cells?: unknown }[] }
  const store = async (state: RowsHead['state']) => {
    const set = { kind: source.kind, state, ...seen, by }
    const options = { upsert: true, returnDocument: 'after' } as const
    return await headsOf(db).findOneAndUpdate({ _id: name }, { $set: set, $currentDate: { at: true } }, options)
  }
  await store('importing')
  let batch: [number, Row][] = []
  let bytes = 0
  const flush = async () => {
    if (batch.length === 0) return
    signal.throwIfAborted()
    const _id = batchId(name, seen.batches)
    await batchesOf(db).replaceOne({ _id }, { rows: batch }, { upsert: true })
    seen.batches += 1
    batch = []
    bytes = 0
  }
  for await (const one of source.read()) {
    const stored = storable(one)
    if ('problem' in stored) {
      seen.bad += 1
      if (seen.badRows.length < MOST_SHOWN)
        seen.badRows.push({
          number: one.number,
          problem: stored.problem,
          ...(stored.cells !== undefined && { cells: stored.cells }),
        })
      continue
    }
    if (bytes + stored.bytes > BATCH_BYTES) await flush()
    batch.push([one.number, stored.row])
    bytes += stored.bytes
    seen.rows += 1
    if (batch.length === BATCH_ROWS) await flush()
  }
  await flush()
  signal.throwIfAborted()
  return (await store('complete'))!
}

function storable(one: SourceRow): { row: Row; bytes: number } | { problem: string; cells?: unknown } {
  if ('problem' in one)
    return {
      problem: one.problem.slice(0, 500),
      cells: one.cells?.slice(0, 100).map((cell) => String(cell).slice(0, 200)),
    }
  const loss = lossInDocument(one.row)
  if (loss) return { problem: `${loss.path}: ${loss.problem}`.slice(0, 500) }
  const bytes = BSON.calculateObjectSize(one.row)
  if (bytes <= BATCH_BYTES / 8) return { row: one.row, bytes }
  return { problem: `expected a row of at most ${BATCH_BYTES / 8} bytes, got ${bytes}` }
}

/** The state of an import. @throws NoRows unless it is complete */
export async function rowsHead(db: Db, name: string): Promise<RowsHead> {
  const head = await headsOf(db).findOne({ _id: name })
  if (head?.state === 'complete') return head
  const problem = head
    ? `expected the import of the rows ${name} to be complete; ${head.by} has been at it since ${head.at.toISOString()}`
    : `expected rows under the name ${name}, got none; import them with importRows`
  throw new NoRows(name, problem)
}

/** The rows of one batch, 0 for the first. @throws NoRows if it is gone */
export async function rowsOfBatch(db: Db, name: string, batch: number): Promise<readonly (readonly [number, Row])[]> {
  const found = await batchesOf(db).findOne({ _id: batchId(name, batch) })
  if (found) return found.rows
  throw new NoRows(
    name,
    `expected batch ${batch} of the rows ${name}, got none: it was removed; import them anew under another name`,
  )
}

/** Refuses the place of a loop over rows that were removed since, and imported again under their name. @throws NoRows */
export function requireSame(name: string, placedMs: number | undefined, atMs: number): void {
  if (placedMs === undefined || placedMs === atMs) return
  const [placed, at] = [placedMs, atMs].map((ms) => new Date(ms).toISOString())
  throw new NoRows(
    name,
    `expected the rows ${name} as they were imported at ${placed}, got an import of ${at}: they were removed and imported again; begin the loop again, or import them under another name`,
  )
}

/**
 * Removes rows with all of their batches; waits for an import of them that is under way.
 * @returns false if there were none
 * @throws UnusableSource if that import takes longer than an hour
 */
export async function removeRows(db: Db, name: string): Promise<boolean> {
  return await locked(db, name, async () => {
    const { deletedCount } = await headsOf(db).deleteOne({ _id: name })
    await removeBatches(db, name)
    return deletedCount > 0
  })
}

/** A range of `_id`: the index serves it, and a name can't be the beginning of another one's batches, because no name has a slash. */
const removeBatches = (db: Db, name: string) => batchesOf(db).deleteMany({ _id: { $gte: `${name}/`, $lt: `${name}0` } })
