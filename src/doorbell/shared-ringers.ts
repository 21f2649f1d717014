import { hostname } from 'node:os'
import type { Db } from 'mongodb'
import type { Ring } from './ring.js'
import { Ringer } from './ringer.js'

/** What an owner needs from a doorbell. */
export type RingOnly = Pick<Ringer, 'ring' | 'flush'>

const ringers = new WeakMap<object, Map<string, Ringer>>()

/** This process's ringer for a database on a client: all its owners together ring at most 20 times a second. */
export function ringerOf(db: Db): RingOnly {
  const client: object = (db as { client?: object }).client ?? db
  const known = ringers.get(client) ?? new Map<string, Ringer>()
  ringers.set(client, known)
  const found = known.get(db.databaseName) ?? new Ringer(db, `${hostname()}-${process.pid}`)
  known.set(db.databaseName, found)
  return found
}

/** Rings nobody. */
export const SILENT: RingOnly = { ring: (_ring: Ring) => undefined, flush: async () => undefined }
