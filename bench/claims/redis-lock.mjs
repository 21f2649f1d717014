import { randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import { protocolClient } from '../../dist/database/index.js'
import { lanes } from './lanes.mjs'
import { COLLECTION, documentsOf } from './mongo-documents.mjs'
import { sharedPage } from './page.mjs'

export const about =
  'SET NX PX on a key for each document, released by compare and delete in Lua; the documents are in MongoDB. Redlock with one server is this'

export const { prepare, remaining, doneBy, drop } = documentsOf('mongo')

const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
/** Candidates that one read of the database brings. */
const PAGE = 500

/** The lock is in one place and the document in another: the write to the document can't be conditional on the lock. */
export async function work({ servers, space, name, lanes: count, leaseMs }, workOn) {
  const redis = new Redis({ ...servers.redis, maxRetriesPerRequest: 1 })
  redis.on('error', () => undefined)
  redis.defineCommand('releaseLock', { numberOfKeys: 1, lua: RELEASE })
  const client = await protocolClient(servers.mongo, {}).connect()
  const things = client.db(space).collection(COLLECTION)
  const next = sharedPage(() =>
    things
      .find({ phase: 'Queued' }, { projection: { number: 1 } })
      .limit(PAGE)
      .toArray(),
  )
  const stop = lanes(count, async () => {
    const thing = await next()
    if (!thing) return 0
    const key = `${space}:${thing.number}`
    const token = randomUUID()
    if ((await redis.set(key, token, 'PX', leaseMs, 'NX')) === null) return 0
    try {
      // Between the read of the page and the lock somebody else may have held and finished it.
      const current = await things.findOne({ _id: thing._id, phase: 'Queued' }, { projection: { _id: 1 } })
      if (!current) return 0
      await workOn(thing.number)
      await things.updateOne({ _id: thing._id }, { $set: { phase: 'Done', doneBy: name } })
      return 1
    } finally {
      await redis.releaseLock(key, token)
    }
  })
  return async () => {
    await stop()
    redis.disconnect()
    await client.close()
  }
}
