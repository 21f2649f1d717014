import type { PointFilter, StoredPoint } from './vector-store.js'

const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`
const text = (value: string) => `'${value.replaceAll("'", "''")}'`

/** The name of a collection's table, quoted. */
export const tableOf = (schema: string | undefined, collection: string): string =>
  schema === undefined ? quoted(collection) : `${quoted(schema)}.${quoted(collection)}`

/**
 * One statement, so a table never lacks its comment, whichever connections of the pool run it. No index on the vectors: an approximate one leaves
 * out points once the filter is applied, unless the session sets `hnsw.iterative_scan`. Paths compare by their bytes, so `starts_with` uses the index.
 */
export function createCollection(table: string, dimensions: number, comment: string): string {
  const body = `begin
    if not exists (select from pg_extension where extname = 'vector') then create extension if not exists vector; end if;
    create table if not exists ${table} (id uuid primary key, vector vector(${dimensions}) not null, fence bigint not null,
      repository text not null, path text collate "C" not null, blob text not null, hash text not null, from_line int not null,
      to_line int not null, text text not null);
    create index if not exists ${quoted(indexOf(table))} on ${table} (repository, path);
    comment on table ${table} is ${text(comment)};
  end`
  return `do ${text(body)}`
}

/** PostgreSQL cuts names at 63 bytes; the index of a table may share its beginning with another's, so its end counts. */
const indexOf = (table: string) => `${table.split('.').at(-1)!.replaceAll('"', '').slice(0, 50)}_${hashOf(table)}`

function hashOf(name: string): string {
  let hash = 0
  for (const char of name) hash = (Math.imul(hash, 31) + char.codePointAt(0)!) >>> 0
  return hash.toString(36)
}

/** A point as a row, without its vector. */
export const columnsOf = ({ fromLine, toLine, ...point }: Omit<StoredPoint, 'fence'>, fence: number) => ({
  ...point,
  from_line: fromLine,
  to_line: toLine,
  fence,
})

/** A `where` of `condition`, which uses `values`, and the filter, whose values are appended. */
export function whereOf(filter: PointFilter, condition: string, values: unknown[]) {
  const all = [condition]
  const add = (value: unknown, sql: (parameter: string) => string) => {
    if (value === undefined) return
    values.push(value)
    all.push(sql(`$${values.length}`))
  }
  add(filter.repository, (value) => `repository = ${value}`)
  add(filter.paths, (value) => `path = any(${value}::text[])`)
  add(filter.under, (value) => `(path = ${value} or starts_with(path, ${value} || '/'))`)
  add(filter.ids, (value) => `id = any(${value}::uuid[])`)
  add(filter.exceptIds, (value) => `id <> all(${value}::uuid[])`)
  return { where: `where ${all.join(' and ')}`, values }
}
