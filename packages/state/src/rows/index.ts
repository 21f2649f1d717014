/**
 * Rows of tables that all replicas read, and loops over them that go on after a crash (docs/state.md).
 *
 * @packageDocumentation
 */
export {
  type EachRowOptions,
  eachRow,
  type QuarantinedRow,
  quarantinedRows,
  type RowContext,
  type RowsPlace,
} from './each-row.js'
export { BadRow, LoopExpired, NoRows, UnusableSource } from './errors.js'
export { importRows, ROWS_COLLECTION, type RowsHead, removeRows, rowsHead } from './import-rows.js'
export { LoopTaken, type RowLoop, type RowLoopOptions, rowLoop } from './row-loop.js'
export { type CsvOptions, csv, query, type Row, type RowSource, xlsx } from './sources.js'
