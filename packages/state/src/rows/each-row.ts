import type { Db } from 'mongodb'
import type { Outcome, Step } from 'phaselock'
import { idText, protocolCollection } from 'phaselock/tasks'
import { ROWS_COLLECTION, requireSame, rowsHead, rowsOfBatch } from './import-rows.js'
import type { Row } from './sources.js'

/** A row in the hands of its handler. */
export interface RowContext {
  /** Its number in the source: 1 for the first one below the head. */
  readonly number: number
  /** 1 for the first time that it is handled, then one more after each failure or crash. */
  readonly attempt: number
  /** Aborts when the step is asked to stop. */
  readonly signal: AbortSignal
}

/** The options of `eachRow`. */
export interface EachRowOptions<R = Row> {
  /** The rows: where `importRows` has stored them, and under which name. */
  readonly rows: { readonly db: Db; readonly name: string }
  /** Handles one row. It throws BadRow for one that no repetition will mend. */
  readonly each: (row: R, context: RowContext) => void | Promise<void>
  /** The document's field that keeps the place of the loop. Default `rows`. */
  readonly field?: string | undefined
  /** The attempts at one row, failed or ended by a crash, until it is quarantined. 1 to 5, default 3. */
  readonly tries?: number | undefined
}

/** The place of a loop in its document. */
export interface RowsPlace {
  /** The name of the rows: a loop over others begins anew. */
  readonly name: string
  /** The time of their import: the place of a former one, which was removed, is of no use. */
  readonly at?: Date
  /** The next row: its batch, and its index there. All rows before it are done. */
  readonly batch: number
  readonly index: number
  /** The numbers of rows that were handled, and quarantined. */
  readonly handled: number
  readonly quarantined: number
  /** The attempts at the next row so far, and how the last one failed. */
  readonly tries: number
  readonly problem?: string
  /** True once all rows are done. */
  readonly isDone?: true
}

/** A row that was quarantined. */
export interface QuarantinedRow {
  /** The name of the rows. */
  readonly rows: string
  /** The `_id` of the document whose loop it was. */
  readonly document: unknown
  readonly number: number
  readonly cells: Row
  readonly problem: string
}

const MOST_TRIES = 5

/**
 * Handles imported rows in the steps of a document, one batch of 1,000 in a step. The place of the loop stands in the document, so it goes on there after
 * a crash, on any replica, and no TTL forgets it. Each row is recorded once: what a row does is repeated only if its process dies before the next row
 * begins. A row that kills its process or fails `tries` times is quarantined with its number and cells, and the loop goes on.
 *
 * @example
 * ```ts
 * order.handle({
 *   Importing: async (doc, step) => {
 *     const more = await eachRow(doc, step, { rows: { db, name: doc.source }, each: (row) => send(row) })
 *     return more ?? step.moveTo('Imported')
 *   },
 * })
 * ```
 * @returns the outcome of this step while there are more rows; undefined once all are done
 * @throws NoRows; LeaseLost; what `each` throws, for the lifecycle's own retries
 */
export async function eachRow<Doc extends { readonly _id: unknown }, R = Row>(
  doc: Doc,
  step: Pick<Step<string, Doc>, 'again' | 'checkpoint' | 'signal'>,
  { rows: { db, name }, each, field = 'rows', tries = 3 }: EachRowOptions<R>,
): Promise<Outcome<never, Doc> | undefined> {
  if (!(Number.isInteger(tries) && tries >= 1 && tries <= MOST_TRIES))
    throw new TypeError(`eachRow: tries: expected a whole number from 1 to ${MOST_TRIES}, got ${tries}`)
  let place = placeIn(doc, field, name)
  if (place.isDone) return undefined
  const set = (next: RowsPlace) => ({ [field]: next }) as never
  const { batches, at } = await rowsHead(db, name)
  requireSame(name, place.at?.getTime(), at.getTime())
  place = { ...place, at }
  const batch = place.batch < batches ? await rowsOfBatch(db, name, place.batch) : []
  // A claim without a recorded outcome counts against the document: after a crash the outcome of one row is recorded at once.
  const last = place.tries > 0 ? place.index + 1 : batch.length
  while (place.index < Math.min(last, batch.length)) {
    const [number, row] = batch[place.index]!
    if (place.tries >= tries) {
      const problem = place.problem ?? `its process has ended ${tries} times while it was handled`
      await quarantine(db, { rows: name, document: doc._id, number, cells: row, problem })
      place = after(place, 'quarantined')
      continue
    }
    place = { ...place, tries: place.tries + 1 }
    await step.checkpoint(set(place))
    try {
      await each(row as R, { number, attempt: place.tries, signal: step.signal })
      place = after(place, 'handled')
    } catch (error) {
      const problem = textOf(error)
      if ((error as Error | undefined)?.name === 'BadRow') {
        await quarantine(db, { rows: name, document: doc._id, number, cells: row, problem })
        place = after(place, 'quarantined')
        continue
      }
      // Something outside is away, or the process is shut down: that is no fault of the row.
      const isOutside = (error as Error | undefined)?.name === 'Unavailable' || isShutdown(step.signal)
      await step.checkpoint(set({ ...place, tries: place.tries - (isOutside ? 1 : 0), problem }))
      throw error
    }
    if (step.signal.aborted) break
  }
  if (place.index < batch.length) return step.again({ set: set(place) })
  place = { ...place, batch: place.batch + 1, index: 0 }
  if (place.batch < batches) return step.again({ set: set(place) })
  await step.checkpoint(set({ ...place, isDone: true }))
  return undefined
}

function placeIn(doc: object, field: string, name: string): RowsPlace {
  const place = (doc as Readonly<Record<string, unknown>>)[field] as RowsPlace | undefined
  if (place?.name === name) return place
  return { name, batch: 0, index: 0, handled: 0, quarantined: 0, tries: 0 }
}

const isShutdown = ({ aborted, reason }: AbortSignal): boolean =>
  aborted && (reason as { why?: unknown } | undefined)?.why === 'shutdown'

const after = (
  { name, at, batch, index, handled, quarantined }: RowsPlace,
  end: 'handled' | 'quarantined',
): RowsPlace => ({
  ...{ name, ...(at && { at }), batch, tries: 0 },
  index: index + 1,
  handled: handled + (end === 'handled' ? 1 : 0),
  quarantined: quarantined + (end === 'quarantined' ? 1 : 0),
})

/** Idempotent: the crash after it repeats it. */
async function quarantine(db: Db, bad: QuarantinedRow): Promise<void> {
  const _id = `${bad.rows}/quarantined/${idText(bad.document)}/${bad.number}`
  const collection = protocolCollection<QuarantinedRow & { _id: string }>(db, ROWS_COLLECTION)
  await collection.replaceOne({ _id }, bad, { upsert: true })
}

/** The rows that were quarantined, of all loops over these rows, in no particular order. @param limit at most 10,000. Default 1,000 */
export async function quarantinedRows(db: Db, name: string, limit = 1_000): Promise<QuarantinedRow[]> {
  const collection = protocolCollection<QuarantinedRow & { _id: string }>(db, ROWS_COLLECTION)
  const range = { $gte: `${name}/quarantined/`, $lt: `${name}/quarantined0` }
  const found = await collection.find({ _id: range }).limit(Math.min(limit, 10_000)).toArray()
  return found.map(({ rows, document, number, cells, problem }) => ({ rows, document, number, cells, problem }))
}

const textOf = (error: unknown): string =>
  (error instanceof Error ? `${error.name}: ${error.message}` : String(error)).slice(0, 500)
