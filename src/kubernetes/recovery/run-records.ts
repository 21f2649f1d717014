import type { Collection, Db } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import type { ContainerRun } from './container-run.js'

/** The collection with a document for each start of a replica that runs in a pod. */
export const CONTAINERS_COLLECTION = 'phaselock.containers'

/** The record of one start; `_id` is the replica's identity, the prefix of each of its tokens. */
interface RunRecord {
  readonly _id: string
  readonly seenAt: Date
  readonly run: ContainerRun
}

/** A record that hasn't been renewed for this long is useless: no lease is that old. */
const KEPT_MS = 24 * 3_600_000
/** The interval at which a replica renews its record. */
export const SAID_EVERY_MS = 3_600_000
const MOST = 1_000

/** The containers that the replicas of a database run in. */
export class RunRecords {
  private readonly records: Collection<RunRecord>

  constructor(db: Db) {
    this.records = protocolCollection(db, CONTAINERS_COLLECTION)
  }

  /** Records where a replica runs, and forgets replicas that haven't renewed their record for a day. */
  async say(replica: string, run: ContainerRun): Promise<void> {
    const record = { $set: { seenAt: '$$NOW', run: { $literal: { ...run } } } }
    await this.records.updateOne({ _id: replica }, [record], { upsert: true })
    await this.records.deleteMany({ $expr: { $lt: ['$seenAt', { $subtract: ['$$NOW', KEPT_MS] }] } })
  }

  async forget(replica: string): Promise<void> {
    await this.records.deleteMany({ _id: replica })
  }

  /** The replicas that have run in a pod, with their runs. */
  async inPod(uid: string): Promise<{ readonly replica: string; readonly run: ContainerRun }[]> {
    const found = await this.records.find({ 'run.uid': uid }, { limit: MOST }).toArray()
    return found.map(({ _id, run }) => ({ replica: _id, run }))
  }
}
