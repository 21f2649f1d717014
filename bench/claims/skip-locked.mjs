import { lanes } from './lanes.mjs'
import { pool } from './postgres-rows.mjs'

export { doneBy, drop, prepare, remaining } from './postgres-rows.mjs'

export const about =
  'SELECT ... FOR UPDATE SKIP LOCKED; the row lock is held by an open transaction while the work runs'

const CLAIM = `select id from thing where state = 'queued' order by id limit $1 for update skip locked`
const RELEASE = `update thing set state = 'done', done_by = $2 where id = any($1)`

/** The transaction is the lease: it ends with the connection, so there is nothing to renew and nothing to expire. */
export async function work({ servers, space, name, batch, lanes: count }, workOn) {
  const connections = pool(servers, space, count)
  const stop = lanes(count, async () => {
    const client = await connections.connect()
    let failed
    try {
      await client.query('begin')
      const { rows } = await client.query(CLAIM, [batch])
      const ids = rows.map(({ id }) => id)
      await Promise.all(ids.map(workOn))
      if (ids.length > 0) await client.query(RELEASE, [ids, name])
      await client.query('commit')
      return ids.length
    } catch (error) {
      failed = error
      throw error
    } finally {
      client.release(failed)
    }
  })
  return async () => {
    await stop()
    await connections.end()
  }
}
