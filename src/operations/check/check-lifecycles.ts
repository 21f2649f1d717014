import type { Db } from 'mongodb'
import { DEFAULT_LOCK_TIMEOUT_MS } from '../../database/index.js'
import {
  brokenLockTimeout,
  HANDLED_EVERY_MS,
  isDue,
  LIFECYCLES_COLLECTION,
  lockTimeoutAt,
  termsOf,
} from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { COUNT_LIMIT } from '../count.js'
import { counted } from './check-documents.js'
import { type Checked, type CheckResult, type Finding, finding } from './finding.js'

/** Replicas renew the stamp once a minute; two missed ones may be an outage of their own. */
const UNHANDLED_AFTER_MS = 3 * HANDLED_EVERY_MS

interface Row {
  _id: string
  collection: string
  lockTimeout?: unknown
  phases?: string[]
  handledAt?: Date
  now: Date
}

/**
 * Finds lifecycles that no replica looks after. All replicas of a lifecycle share one stamp, `handledAt`, renewed once a minute by
 * whichever looks first: it tells whether any of them runs, not which or how many.
 */
export async function checkLifecycles({ db, models }: Checked): Promise<CheckResult> {
  const rows = await db
    .collection(LIFECYCLES_COLLECTION)
    .aggregate<Row>([{ $addFields: { now: '$$NOW' } }])
    .toArray()
  const findings = [
    ...rows.flatMap(brokenEntry),
    ...(await Promise.all(rows.map((row) => unhandled(db, row)))).flat(),
    ...(await Promise.all(models.map((model) => neverRun(db, model, rows)))).flat(),
  ]
  return { check: 'lifecycles', said: `${rows.length} registered`, findings }
}

function brokenEntry(row: Row): Finding[] {
  const broken = brokenLockTimeout(row, row.now)
  if (broken === undefined) return []
  const inForce = lockTimeoutAt(row, row.now)
  return [
    finding(
      `lifecycle ${row._id} in ${LIFECYCLES_COLLECTION}`,
      `${broken}; ${inForce ? `replicas keep to ${formatMs(inForce.dueMs)}` : 'no replica has seen it yet'}`,
      `set the one that is meant: phaselock set-lock-timeout ${row._id} 30s`,
    ),
  ]
}

async function unhandled(db: Db, row: Row): Promise<Finding[]> {
  const { _id, collection, phases = [], handledAt, now } = row
  const silentMs = handledAt instanceof Date ? now.getTime() - handledAt.getTime() : undefined
  if (silentMs !== undefined && silentMs < UNHANDLED_AFTER_MS) return []
  const lockTimeoutMs = lockTimeoutAt(row, now)?.dueMs ?? DEFAULT_LOCK_TIMEOUT_MS
  const due = await db
    .collection(collection)
    .countDocuments(
      { phase: { $in: Array.isArray(phases) ? phases : [] }, $expr: isDue(termsOf(lockTimeoutMs)) },
      { limit: COUNT_LIMIT },
    )
  const waits = due === 0 ? '' : `; ${counted(due)} documents of ${collection} are due or at rest`
  const since = silentMs === undefined ? 'as far as is recorded' : `for ${formatMs(silentMs)}`
  return [
    finding(
      `lifecycle ${_id}`,
      `no replica has looked after it ${since}${waits}`,
      `start replicas that run it; if it is retired: db.getCollection('${LIFECYCLES_COLLECTION}').deleteOne({ _id: '${_id}' })`,
    ),
  ]
}

async function neverRun(db: Db, { name, collection }: LifecycleModel, rows: readonly Row[]): Promise<Finding[]> {
  if (rows.some((row) => row._id === name)) return []
  const documents = await db.collection(collection).countDocuments({}, { limit: COUNT_LIMIT })
  if (documents === 0) return []
  return [
    finding(
      `lifecycle ${name}`,
      `no replica has ever run it here; ${counted(documents)} documents are in ${collection}`,
      'start replicas that run it',
    ),
  ]
}
