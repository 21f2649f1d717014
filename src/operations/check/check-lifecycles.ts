import { BSON, type Db, type Document } from 'mongodb'
import { DEFAULT_LOCK_TIMEOUT_MS } from '../../database/index.js'
import {
  brokenLockTimeout,
  HANDLED_EVERY_MS,
  isDue,
  LIFECYCLES_COLLECTION,
  lockTimeoutAt,
  namesNobodyKnows,
  readOwnFields,
  termsOf,
  typeName,
} from '../../lock/index.js'
import { COLLECTION_NAME, numbered, typed } from '../../options/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { formatMs } from '../../time/index.js'
import { OPERATION_LIFECYCLE } from '../bulk/operation.js'
import { COUNT_LIMIT } from '../inspect/count.js'
import { idText, idTyped } from '../system/document-id.js'
import { documents } from './check-documents.js'
import { type Checked, type CheckResult, type Finding, finding } from './finding.js'

/** The age of a stamp that is reported. Replicas renew it once a minute; two missed renewals may be an outage of their own. */
const UNHANDLED_AFTER_MS = 3 * HANDLED_EVERY_MS

const MOST_TASKS = 100

interface Row {
  _id: string
  collection: string
  lockTimeout?: unknown
  phases?: unknown
  handledAt?: unknown
  now: Date
}

/**
 * Finds lifecycles that no replica looks after. All replicas of a lifecycle share one stamp, `handledAt`, renewed once a minute by the
 * first one that looks. It shows that at least one of them runs, not which or how many.
 */
export async function checkLifecycles({ db, models }: Checked): Promise<CheckResult> {
  const pipeline = [{ $addFields: { now: '$$NOW' } }]
  const entries = await readOwnFields((how) => db.collection(LIFECYCLES_COLLECTION).aggregate(pipeline, how).toArray())
  const rows = entries.filter(isNamed)
  const findings = [
    ...entries.filter((entry) => !isNamed(entry)).map(foreignEntry),
    ...rows.flatMap(brokenEntry),
    ...(await Promise.all(rows.map((row) => unhandled(db, row)))).flat(),
    ...(await Promise.all(models.map((model) => neverRun(db, model, rows)))).flat(),
    ...(await Promise.all(rows.map((row) => unknownTasks(db, row)))).flat(),
  ]
  return { check: 'lifecycles', said: `${entries.length} registered`, findings }
}

const isNonEmpty = (value: unknown): value is string => typeof value === 'string' && value !== ''

/** True if the entry names its lifecycle and a collection. */
const isNamed = (entry: Document): entry is Row =>
  isNonEmpty(entry['_id']) && isNonEmpty(entry['collection']) && COLLECTION_NAME.test(entry['collection'])

const forgetting = (lifecycle: string): string => `phaselock lifecycles forget ${typed(lifecycle)}`

/** A finding for an entry that no replica can have written: nothing can be looked up by it. */
function foreignEntry({ _id, collection }: Document): Finding {
  const [field, value] = isNonEmpty(_id) ? ['collection', collection] : ['_id', _id]
  return finding(
    `entry ${idText(_id)} in ${LIFECYCLES_COLLECTION}`,
    `its ${field} is ${value === '' ? 'empty' : isNonEmpty(value) ? 'not a name' : typeName(value)}, expected a ${isNonEmpty(value) ? "collection's name" : 'string'}: it belongs to no lifecycle`,
    `remove it; a replica that runs the lifecycle registers it again: ${isNonEmpty(_id) ? forgetting(_id) : `db.getCollection('${LIFECYCLES_COLLECTION}').deleteOne({ _id: ${BSON.EJSON.stringify(_id)} })`}`,
  )
}

function brokenEntry(row: Row): Finding[] {
  const broken = brokenLockTimeout(row, row.now)
  if (broken === undefined) return []
  const inForce = lockTimeoutAt(row, row.now)
  return [
    finding(
      `lifecycle ${row._id} in ${LIFECYCLES_COLLECTION}`,
      `${broken}; ${inForce ? `replicas keep to ${formatMs(inForce.dueMs)}` : 'no replica has seen it yet'}`,
      `set the one that is meant: phaselock set-lock-timeout ${idTyped(row._id)} 30s`,
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
  // Operations are started by people, who also run the process that works on them as long as they last.
  if (_id === OPERATION_LIFECYCLE && due === 0) return []
  const waits = due === 0 ? '' : `; ${documents(due)} of ${collection} ${due === 1 ? 'is' : 'are'} due or at rest`
  const since = silentMs === undefined ? 'as far as is recorded' : `for ${formatMs(silentMs)}`
  return [
    finding(
      `lifecycle ${_id}`,
      `no replica has looked after it ${since}${waits}`,
      `start replicas that run it; if it is retired: ${forgetting(_id)}`,
    ),
  ]
}

async function neverRun(db: Db, { name, collection }: LifecycleModel, rows: readonly Row[]): Promise<Finding[]> {
  if (rows.some((row) => row._id === name)) return []
  const there = await db.collection(collection).countDocuments({}, { limit: COUNT_LIMIT })
  if (there === 0) return []
  return [
    finding(
      `lifecycle ${name}`,
      `no replica has ever run it here; ${documents(there)} ${there === 1 ? 'is' : 'are'} in ${collection}`,
      'start replicas that run it',
    ),
  ]
}

/** Finds tasks of schedules that no live replica knows, by the runs that wait for one. */
async function unknownTasks(db: Db, { _id, collection }: Row): Promise<Finding[]> {
  if (!_id.endsWith('.runs')) return []
  const waiting = await db
    .collection(collection)
    .aggregate<{ _id: unknown; n: number }>([
      { $match: { phase: 'Queued', task: { $type: 'string' } } },
      { $limit: COUNT_LIMIT },
      { $group: { _id: '$task', n: { $sum: 1 } } },
      { $limit: MOST_TASKS },
    ])
    .toArray()
  if (waiting.length === 0) return []
  const counts = new Map(waiting.map((one) => [String(one._id), one.n]))
  const names = await namesNobodyKnows(db, _id, [...counts.keys()])
  return names.map((task) =>
    finding(
      `task ${task}`,
      `no replica that runs knows it; ${numbered(counts.get(task)!, 'run')} ${counts.get(task) === 1 ? 'waits' : 'wait'} for one`,
      'correct the name in their schedules, or start a version that has it',
    ),
  )
}
