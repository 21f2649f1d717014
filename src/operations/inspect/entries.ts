import type { Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  COMMITTED,
  IN_FORCE_FIELDS,
  LIFECYCLES_COLLECTION,
  type LockTimeoutRecord,
  PRESENT_REPLICAS,
  type PresentReplica,
  readOwnFields,
} from '../../lock/index.js'

const MOST_MS = 5_000

/** What a lifecycle's entry says of who runs it, of what is in force, and of what changed. A person may have put anything there. */
export interface Entry extends LockTimeoutRecord, Document {
  readonly _id: string
  readonly live: readonly PresentReplica[]
  /** The server's time. */
  readonly now: Date
}

/** Reads the entries of some lifecycles, with one command. */
export async function readEntries(db: Db, lifecycles: readonly string[]): Promise<readonly Entry[]> {
  const fields = { ...IN_FORCE_FIELDS, replicas: 1, 'graphs.graph': 1, 'graphs.at': 1 }
  const pipeline = [
    { $match: { _id: { $in: [...lifecycles] } } },
    { $project: { ...fields, live: PRESENT_REPLICAS, now: '$$NOW' } },
  ]
  const entries = protocolCollection<Document>(db, LIFECYCLES_COLLECTION)
  const reading = { maxTimeMS: MOST_MS, ...COMMITTED }
  return (await readOwnFields((how) => entries.aggregate(pipeline, { ...reading, ...how }).toArray())) as Entry[]
}
