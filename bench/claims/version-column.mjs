import { lanes } from './lanes.mjs'
import { sharedPage } from './page.mjs'
import { pool } from './postgres-rows.mjs'

export { doneBy, drop, prepare, remaining } from './postgres-rows.mjs'

export const about =
  'a version column: claimed and released by UPDATE ... WHERE version = the one read; a lease ends by time'

const CANDIDATES = `select id, version from thing
  where state = 'queued' and held_until < now() order by id limit $1`
const CLAIM = `update thing set version = thing.version + 1, held_until = now() + $3 * interval '1 ms'
  from unnest($1::int[], $2::int[]) as seen (id, version)
  where thing.id = seen.id and thing.version = seen.version
  returning thing.id, thing.version`
const RELEASE = `update thing set state = 'done', done_by = $3, version = thing.version + 1
  from unnest($1::int[], $2::int[]) as held (id, version)
  where thing.id = held.id and thing.version = held.version`

/** @param options `claimEach`: one at a time, from a page of candidates of which each lane takes the next */
export async function work({ servers, space, name, batch, lanes: count, leaseMs, claimEach = false }, workOn) {
  const connections = pool(servers, space, count)
  const column = (rows, field) => rows.map((row) => row[field])
  const claimAndWork = async (candidates) => {
    const claimed = await connections.query(CLAIM, [column(candidates, 'id'), column(candidates, 'version'), leaseMs])
    if (claimed.rowCount === 0) return 0
    await Promise.all(column(claimed.rows, 'id').map(workOn))
    const { rowCount } = await connections.query(RELEASE, [
      column(claimed.rows, 'id'),
      column(claimed.rows, 'version'),
      name,
    ])
    return rowCount
  }
  const candidates = async () => (await connections.query(CANDIDATES, [batch])).rows
  const next = sharedPage(candidates)
  const stop = lanes(count, async () => {
    const some = claimEach ? [await next()].filter(Boolean) : await candidates()
    return some.length > 0 ? claimAndWork(some) : 0
  })
  return async () => {
    await stop()
    await connections.end()
  }
}
