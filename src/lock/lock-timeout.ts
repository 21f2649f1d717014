import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../database/index.js'
import { PARKED_AT, TASK_LOCK_INIT_TIME } from './constants.js'
import { inProgress, isDate, type Terms } from './terms.js'

/** Holds a document for each lifecycle: its `_id`, collection and the lockTimeout in force (ms). */
export const LIFECYCLES_COLLECTION = 'phaselock.lifecycles'

/** For so long after it was read a replica judges by a lockTimeout; the server refuses its claims after that. */
export const KNOWN_FOR_MS = 5_000

/** The command that announces a change takes no longer. */
const ANNOUNCED_WITHIN_MS = 3_000

/**
 * So long after a change was announced nobody claims, or takes a lease, by what stood there before: the time for which a
 * replica may go by what it has read, that of the announcing command itself, and 2 s of slack.
 */
export const HANDOVER_MS = KNOWN_FOR_MS + ANNOUNCED_WITHIN_MS + 2_000

/** What `phaselock.lifecycles` says of a lifecycle's lockTimeout. All in ms; the last two are there after a change. */
export interface LockTimeoutRecord {
  readonly lockTimeout: number
  readonly lockTimeoutWas?: number
  readonly lockTimeoutSince?: Date
}

/** The projection that reads a {@link LockTimeoutRecord}. */
export const LOCK_TIMEOUT_FIELDS = { lockTimeout: 1, lockTimeoutWas: 1, lockTimeoutSince: 1 } as const

/** The lockTimeout as a replica uses it, as of one moment of the server's clock. */
export interface LockTimeoutInForce {
  /** What documents are judged due by, and sleeps are encoded with. */
  readonly dueMs: number
  /** How long a lease lasts for its holder that is taken or renewed now. */
  readonly leaseMs: number
  /** Server time: nothing is judged by this later. */
  readonly knownUntil: Date
}

/**
 * What is in force at a moment of the server's clock, during a change too: always the larger value for judging others' leases,
 * the smaller one for believing in one's own, until nobody goes by the old one any more.
 *
 * Longer (30 s -> 60 s, announced at 0 s): judged by 60 s at once; leases last 60 s from 10 s on, when no claim is judged by 30 s any more.
 * Shorter (60 s -> 30 s, announced at 0 s): leases last 30 s at once; judged by 30 s from 70 s on, when no lease of 60 s is left.
 */
export function lockTimeoutAt(record: LockTimeoutRecord, now: Date): LockTimeoutInForce {
  const { lockTimeout, lockTimeoutWas: was } = record
  const knownUntil = new Date(now.getTime() + KNOWN_FOR_MS)
  const until = handoverUntil(record)
  if (!until || now >= until || typeof was !== 'number') return { dueMs: lockTimeout, leaseMs: lockTimeout, knownUntil }
  return { dueMs: Math.max(lockTimeout, was), leaseMs: Math.min(lockTimeout, was), knownUntil }
}

/** When a change is over: then all of it is in force. Undefined where nothing was ever changed. */
function handoverUntil({ lockTimeout, lockTimeoutWas, lockTimeoutSince }: LockTimeoutRecord): Date | undefined {
  if (typeof lockTimeoutWas !== 'number' || !(lockTimeoutSince instanceof Date)) return undefined
  const oldLeasesMs = lockTimeout < lockTimeoutWas ? lockTimeoutWas : 0
  return new Date(lockTimeoutSince.getTime() + HANDOVER_MS + oldLeasesMs)
}

/** The lockTimeouts of some lifecycles, with the server's time; a lifecycle that isn't registered is absent. */
export async function readLockTimeouts(
  db: Db,
  lifecycles: readonly string[],
  options: { maxTimeMS?: number } = {},
): Promise<Map<string, LockTimeoutInForce & { readonly now: Date }>> {
  const rows = await protocolCollection<{ _id: string }>(db, LIFECYCLES_COLLECTION)
    .aggregate<LockTimeoutRecord & { _id: string; now: Date }>(
      [{ $match: { _id: { $in: [...lifecycles] } } }, { $project: { ...LOCK_TIMEOUT_FIELDS, now: '$$NOW' } }],
      options,
    )
    .toArray()
  return new Map(rows.map((row) => [row._id, { ...lockTimeoutAt(row, row.now), now: row.now }]))
}

/** What became of a wish to change a lockTimeout. */
export type LockTimeoutChange =
  | { readonly kind: 'changed'; readonly wasMs: number; readonly inForceFrom: Date; readonly now: Date }
  | { readonly kind: 'unchanged' }
  /** No replica has run this lifecycle yet. */
  | { readonly kind: 'notRegistered' }
  /** An earlier change isn't over. */
  | { readonly kind: 'underWay'; readonly until: Date; readonly now: Date }

/**
 * Announces another lockTimeout for a lifecycle; replicas hand over by themselves (see {@link lockTimeoutAt}). One change at a
 * time: the rule for a moment knows of two values only.
 */
export async function changeLockTimeout(db: Db, lifecycle: string, ms: number): Promise<LockTimeoutChange> {
  const lifecycles = protocolCollection<LockTimeoutRecord & { _id: string }>(db, LIFECYCLES_COLLECTION)
  const [found] = await lifecycles
    .aggregate<LockTimeoutRecord & { now: Date }>([
      { $match: { _id: lifecycle } },
      { $project: { ...LOCK_TIMEOUT_FIELDS, now: '$$NOW' } },
    ])
    .toArray()
  if (!found) return { kind: 'notRegistered' }
  const until = handoverUntil(found)
  if (until && found.now < until) return { kind: 'underWay', until, now: found.now }
  if (found.lockTimeout === ms) return { kind: 'unchanged' }
  const changed = await lifecycles.findOneAndUpdate(
    {
      _id: lifecycle,
      lockTimeout: found.lockTimeout,
      // Nobody else has announced one meanwhile.
      lockTimeoutSince: (found.lockTimeoutSince ?? null) as never,
    },
    [{ $set: { lockTimeoutWas: '$lockTimeout', lockTimeout: ms, lockTimeoutSince: '$$NOW' } }],
    { returnDocument: 'after', maxTimeMS: ANNOUNCED_WITHIN_MS },
  )
  if (!changed) return changeLockTimeout(db, lifecycle, ms)
  return {
    kind: 'changed',
    wasMs: found.lockTimeout,
    inForceFrom: handoverUntil(changed)!,
    now: changed.lockTimeoutSince!,
  }
}

/**
 * Lets sleeping documents wake when they were meant to, after a lockTimeout has become longer: else each would sleep longer by the
 * difference. Only what sleeps for Phaselock (`resumeAt` = `lockedAt` + the old lockTimeout) is touched.
 * @param terms with the new lockTimeout
 * @returns how many documents were changed
 */
export async function encodeSleepsAnew(
  collection: Collection,
  terms: Terms,
  phases: readonly string[],
  wasMs: number,
): Promise<number> {
  const resumeAt = inProgress(terms, 'resumeAt')
  const { modifiedCount } = await collection.updateMany(
    {
      phase: { $in: [...phases] },
      lockedAt: { $gt: TASK_LOCK_INIT_TIME, $lt: PARKED_AT },
      lockedBy: null,
      $expr: sleepsFor(terms, wasMs),
    },
    [{ $set: { lockedAt: { $subtract: [resumeAt, terms.lockTimeoutMs] } } }],
  )
  return modifiedCount
}

/** Whether `lockedAt` is the encoding of a sleep until `progress.resumeAt`. */
export const sleepsFor = (terms: Terms, lockTimeoutMs: number): Document => {
  const resumeAt = inProgress(terms, 'resumeAt')
  return {
    $cond: [
      { $and: [isDate('$lockedAt'), isDate(resumeAt)] },
      { $eq: [resumeAt, { $add: ['$lockedAt', lockTimeoutMs] }] },
      false,
    ],
  }
}
