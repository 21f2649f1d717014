import type { Db } from 'mongodb'
import { HANDLED_EVERY_MS, isDue, LIFECYCLES_COLLECTION, termsOf } from '../../lock/index.js'
import { formatMs } from '../../time/index.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import type { CheckResult, Finding } from './finding.js'

const COUNT_LIMIT = 10_000
/** Replicas say it once a minute; two missed ones may be an outage of their own. */
const UNHANDLED_AFTER_MS = 3 * HANDLED_EVERY_MS

interface Row {
  _id: string
  collection: string
  lockTimeout: number
  phases?: string[]
  handledAt?: Date
  now: Date
}

/**
 * Lifecycles that no replica looks after. All replicas of a lifecycle share one stamp, `handledAt`, renewed once a minute by
 * whoever looks first: so it tells whether any of them runs, not which or how many.
 */
export async function checkLifecycles(db: Db, models: readonly LifecycleModel[]): Promise<CheckResult> {
  const rows = await db
    .collection(LIFECYCLES_COLLECTION)
    .aggregate<Row>([{ $addFields: { now: '$$NOW' } }])
    .toArray()
  const findings = [
    ...(await Promise.all(rows.map((row) => unhandled(db, row)))).flat(),
    ...(await Promise.all(models.map((model) => neverRun(db, model, rows)))).flat(),
  ]
  return { check: 'lifecycles', said: `${rows.length} registered`, findings }
}

async function unhandled(
  db: Db,
  { _id, collection, lockTimeout, phases = [], handledAt, now }: Row,
): Promise<Finding[]> {
  const silentMs = handledAt instanceof Date ? now.getTime() - handledAt.getTime() : undefined
  if (silentMs !== undefined && silentMs < UNHANDLED_AFTER_MS) return []
  const due = await db
    .collection(collection)
    .countDocuments({ phase: { $in: phases }, $expr: isDue(termsOf(lockTimeout)) }, { limit: COUNT_LIMIT })
  const waits =
    due === 0 ? '' : `; ${due}${due === COUNT_LIMIT ? '+' : ''} documents of ${collection} are due or at rest`
  const since = silentMs === undefined ? 'as far as it is recorded' : `for ${formatMs(silentMs)}`
  return [
    {
      about: `lifecycle ${_id}`,
      problem: `no replica looks after it, ${since}${waits}`,
      advice: `start replicas that run it; if it is retired: db.getCollection('${LIFECYCLES_COLLECTION}').deleteOne({ _id: '${_id}' })`,
      repair: 'none',
    },
  ]
}

async function neverRun(db: Db, { name, collection }: LifecycleModel, rows: readonly Row[]): Promise<Finding[]> {
  if (rows.some((row) => row._id === name)) return []
  const documents = await db.collection(collection).countDocuments({}, { limit: COUNT_LIMIT })
  if (documents === 0) return []
  return [
    {
      about: `lifecycle ${name}`,
      problem: `no replica has ever run it here; ${documents}${documents === COUNT_LIMIT ? '+' : ''} documents are in ${collection}`,
      advice: 'start replicas that run it',
      repair: 'none',
    },
  ]
}
