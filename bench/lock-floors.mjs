/**
 * Acquire and release by hand, with as little as keeps two callers apart on each server: no fence, no checks of what is
 * given, no limits of time, no care for records that aren't there.
 */
import { Redis } from 'ioredis'
import pg from 'pg'
import { durableOn } from '../dist/database/index.js'

const LEASE_MS = 60_000
const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

/** By kind of provider: `(name) => Promise`, which acquires and releases once; `close()`. */
export async function lockFloors({ db, postgres, redis }) {
  const pool = new pg.Pool({ connectionString: postgres, max: 20 })
  const client = new Redis(redis)
  client.defineCommand('release', { numberOfKeys: 1, lua: RELEASE })
  return {
    mongodb: mongodb(db.collection('locks', { writeConcern: durableOn(db.client) })),
    postgres: await postgresFloor(pool),
    redis: redisFloor(client),
    memory: memory(new Map()),
    async close() {
      await pool.end()
      client.disconnect()
    },
  }
}

let acquisitions = 0
const token = () => `floor-${++acquisitions}`

function mongodb(locks) {
  const isFree = { $expr: { $lte: ['$lockUntil', '$$NOW'] } }
  const known = new Set()
  return async (name) => {
    const lockedBy = token()
    if (!known.has(name)) {
      known.add(name)
      await locks.updateOne({ _id: name }, { $set: { lockUntil: new Date(0) } }, { upsert: true })
    }
    const lockUntil = { $add: ['$$NOW', LEASE_MS] }
    await locks.findOneAndUpdate({ _id: name, ...isFree }, [{ $set: { lockUntil, lockedAt: '$$NOW', lockedBy } }])
    await locks.updateOne({ _id: name, lockedBy }, [{ $set: { lockUntil: '$$NOW' } }])
  }
}

async function postgresFloor(pool) {
  await pool.query(`CREATE TABLE locks (name text PRIMARY KEY, lock_until timestamptz, locked_by text)`)
  const take = `INSERT INTO locks VALUES ($1, clock_timestamp() + interval '60 s', $2)
    ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_by = $2 WHERE locks.lock_until <= clock_timestamp()`
  const free = 'UPDATE locks SET lock_until = clock_timestamp() WHERE name = $1 AND locked_by = $2'
  return async (name) => {
    const values = [name, token()]
    await pool.query(take, values)
    await pool.query(free, values)
  }
}

function redisFloor(client) {
  return async (name) => {
    const value = token()
    await client.set(`locks:${name}`, value, 'PX', LEASE_MS, 'NX')
    await client.release(`locks:${name}`, value)
  }
}

function memory(locks) {
  return async (name) => {
    locks.set(name, { lockedBy: token(), lockUntil: performance.now() + LEASE_MS })
    locks.delete(name)
  }
}
