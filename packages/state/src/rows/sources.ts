import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import type { CsvError } from 'csv-parse'
import { UnusableSource } from './errors.js'

/** A row with its number in the source: 1 for the first one below the head. A bad one couldn't be read. */
export type SourceRow = { readonly number: number; readonly row: Row } | BadSourceRow

/** A row that couldn't be read. */
interface BadSourceRow {
  readonly number: number
  readonly problem: string
  readonly cells: readonly unknown[] | undefined
}

/** A row: its cells by the names of their columns. */
export type Row = Readonly<Record<string, unknown>>

/** Something to import rows from. */
export interface RowSource {
  /** `csv`, `xlsx` or `query`. */
  readonly kind: string
  /** Reads it from its beginning. @throws UnusableSource */
  read(): AsyncIterable<SourceRow>
}

/** The largest .xlsx file: 100,000 rows of 6 cells take 384 MB of memory while they are read (measured). */
const LARGEST_XLSX = 20 * 1024 * 1024
const LARGEST_RECORD = 1024 * 1024

/** The options of `csv`. */
export interface CsvOptions {
  /** The text between two cells. Default `,`. */
  readonly delimiter?: string | undefined
  /** The names of the columns. Default: the first line has them. */
  readonly columns?: readonly string[] | undefined
  /** Default `utf8`; a byte order mark is left out. */
  readonly encoding?: BufferEncoding | undefined
}

/**
 * Rows of a CSV file, which is read as a stream. It needs the package csv-parse.
 * @param from its path, or a function that opens it
 * @example csv('orders.csv', { delimiter: ';' })
 */
export const csv = (from: string | (() => Readable | Promise<Readable>), options: CsvOptions = {}): RowSource => ({
  kind: 'csv',
  async *read() {
    const { parse } = await needed<typeof import('csv-parse')>('csv-parse', () => import('csv-parse'))
    const { delimiter = ',', columns, encoding = 'utf8' } = options
    const headLines = columns ? 0 : 1
    const at: Reading = { records: 0, bad: 0, line: 1, brokenLine: undefined }
    const parser = parse({
      ...{ delimiter, encoding, bom: true, skip_empty_lines: true, relax_column_count: true },
      ...{ max_record_size: LARGEST_RECORD, skip_records_with_error: true },
      // Called for each cell, in the order of the file: rows are numbered here, and not where they are consumed, which is later.
      cast: (cell, { index, lines }) => {
        cellEnded(at, index, lines)
        return cell
      },
      on_record: (cells: string[]) => Object.assign(cells, { number: at.records - headLines }),
      on_skip: (error) => {
        const record = badRecord(at, error)
        if (record <= headLines) throw new UnusableSource(`expected the names of columns, got: ${error?.message}`)
        if (record > at.bad) parser.push({ number: record - headLines, problem: error?.message, cells: undefined })
        at.bad = record
        return undefined
      },
    })
    const stream = typeof from === 'string' ? createReadStream(from) : await from()
    stream.on('error', (error: Error) =>
      parser.destroy(new UnusableSource(`the CSV can't be read: ${error.message}`, { cause: error })),
    )
    stream.pipe(parser)
    let names = columns
    let number = 0
    try {
      for await (const one of parser as AsyncIterable<BadSourceRow | (string[] & { number: number })>) {
        number = one.number
        if ('problem' in one) yield one
        else if (names) yield rowOf(number, names, [...one])
        else names = checkedNames(one)
      }
    } catch (error) {
      if (error instanceof UnusableSource) throw error
      throw new UnusableSource(`the CSV can't be read after row ${number}: ${(error as Error).message}`, {
        cause: error,
      })
    } finally {
      stream.destroy()
    }
    if (!names)
      throw new UnusableSource('expected a CSV with the names of its columns in the first line, got an empty one')
  },
})

/**
 * Rows of a sheet of an .xlsx file, whose first row has the names of the columns. It needs the package read-excel-file, and memory for the whole
 * sheet: files of more than 20 MB are refused.
 * @param from its path, or its content
 * @param sheet the name or the number of the sheet. Default: the first one
 */
export const xlsx = (from: string | Buffer, sheet: string | number = 1): RowSource => ({
  kind: 'xlsx',
  async *read() {
    const { readSheet } = await needed<typeof import('read-excel-file/node')>(
      'read-excel-file',
      () => import('read-excel-file/node'),
    )
    const bytes = typeof from === 'string' ? (await found(from)).size : from.byteLength
    if (bytes > LARGEST_XLSX)
      throw new UnusableSource(
        `expected an .xlsx file of at most ${LARGEST_XLSX / 1024 / 1024} MB, got ${(bytes / 1024 / 1024).toFixed(1)} MB; save it as CSV, which is read as a stream`,
      )
    let rows: readonly (readonly unknown[])[]
    try {
      rows = await readSheet(from as never, sheet as never)
    } catch (error) {
      throw new UnusableSource(`the .xlsx file can't be read: ${(error as Error).message}`, { cause: error })
    }
    const [head, ...others] = rows
    if (!head)
      throw new UnusableSource('expected a sheet with the names of its columns in the first row, got an empty one')
    const names = checkedNames(head)
    for (const [i, cells] of others.entries()) yield rowOf(i + 1, names, cells)
  },
})

/**
 * Rows of a query: a cursor of MongoDB, `pg-query-stream`, or any async iterable of objects.
 * @param open runs the query; called once for each import
 * @example query(() => db.collection('Order').find({ year: 2026 }).sort({ _id: 1 }))
 */
export const query = (open: () => AsyncIterable<Row> | Promise<AsyncIterable<Row>>): RowSource => ({
  kind: 'query',
  async *read() {
    let number = 0
    for await (const row of await open()) {
      number += 1
      if (typeof row === 'object' && row !== null && !Array.isArray(row)) yield { number, row: { ...row } }
      else
        yield { number, problem: `expected an object, got ${Array.isArray(row) ? 'a list' : typeof row}`, cells: [row] }
    }
  },
})

/** How far a CSV is parsed. */
interface Reading {
  /** The number of records whose first cell has ended. */
  records: number
  /** The last record with an error. */
  bad: number
  /** The line of the last cell that has ended. */
  line: number
  /** The line of a stray quote in the quoted cell that is being read. */
  brokenLine: number | undefined
}

/** @throws UnusableSource if a stray quote has made one cell of several lines */
function cellEnded(at: Reading, index: number, line: number): void {
  if (at.brokenLine !== undefined && line > at.brokenLine)
    throw new UnusableSource(
      `expected quotes in a quoted cell to be doubled, got a single one in line ${at.brokenLine}: the lines up to ${line} would be one cell; mend that line`,
    )
  if (index === 0) at.records += 1
  at.line = line
  at.brokenLine = undefined
}

/** The record that an error is about; one record may have several. @throws UnusableSource if the rest of the file can't be told apart */
function badRecord(at: Reading, error: CsvError | undefined): number {
  if (error?.code === 'CSV_QUOTE_NOT_CLOSED')
    throw new UnusableSource(
      `expected each quote to be closed, got one in line ${at.line} or below that is open at the end of the CSV; mend that line`,
    )
  if (!error || !/INVALID_(OPENING|CLOSING)_QUOTE$/.test(error.code))
    throw new UnusableSource(`the CSV can't be read: ${error?.message}`, { cause: error })
  if (/CLOSING/.test(error.code)) at.brokenLine ??= error['lines'] as number
  return at.records + (error['index'] === 0 ? 1 : 0)
}

function rowOf(number: number, names: readonly string[], cells: readonly unknown[]): SourceRow {
  if (cells.length > names.length) {
    const problem = `expected ${names.length} cells, got ${cells.length}`
    return { number, problem, cells }
  }
  return { number, row: Object.fromEntries(names.map((name, i) => [name, cells[i] ?? null])) }
}

function checkedNames(cells: readonly unknown[]): string[] {
  const names = cells.map((cell) => String(cell ?? '').trim())
  const twice = names.find((name, i) => name === '' || names.indexOf(name) !== i)
  if (twice === undefined) return names
  throw new UnusableSource(
    `expected columns with names that differ, got ${twice === '' ? 'one without a name' : `${twice} twice`}: ${names.join(', ').slice(0, 300)}`,
  )
}

async function found(path: string) {
  try {
    return await stat(path)
  } catch (error) {
    throw new UnusableSource(`expected a file, got ${path} (${(error as NodeJS.ErrnoException).code})`, {
      cause: error,
    })
  }
}

async function needed<T>(name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load()
  } catch (error) {
    throw new UnusableSource(`expected the package ${name} to be installed: npm install ${name}`, { cause: error })
  }
}
