import pg from 'pg'
import { query } from '../postgres-query.mjs'

/** The rows of both ways on PostgreSQL. `version` and `held_until` are used by the version column only. */
const TABLE = `create table thing (
  id int primary key, state text not null default 'queued', done_by text,
  version int not null default 0, held_until timestamptz not null default '-infinity')`
const INDEX = `create index on thing (id) where state = 'queued'`

const queryIn = (url, space, text, values) => query(inSchema(url, space), text, values)

export const inSchema = (url, space) => `${url}?options=${encodeURIComponent(`-c search_path=${space}`)}`

/** A pool that survives the server's end. */
export function pool(servers, space, most) {
  const connections = new pg.Pool({ connectionString: inSchema(servers.postgres, space), max: most })
  connections.on('error', () => undefined)
  // Of those in use: what they were asked fails as well, and that is seen.
  connections.on('connect', (client) => client.on('error', () => undefined))
  return connections
}

export async function prepare(servers, space, count) {
  await queryIn(servers.postgres, space, `create schema ${space}`)
  await queryIn(servers.postgres, space, TABLE)
  await queryIn(servers.postgres, space, INDEX)
  await queryIn(servers.postgres, space, 'insert into thing (id) select generate_series(0, $1::int - 1)', [count])
  await queryIn(servers.postgres, space, 'analyze thing')
}

export const remaining = async (servers, space) =>
  (await queryIn(servers.postgres, space, `select count(*)::int as n from thing where state = 'queued'`))[0].n

export const doneBy = async (servers, space) =>
  (await queryIn(servers.postgres, space, 'select done_by from thing'))[0].done_by ?? undefined

export const drop = (servers, space) => queryIn(servers.postgres, space, `drop schema ${space} cascade`)
