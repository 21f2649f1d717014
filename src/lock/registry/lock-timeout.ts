import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { readOwnFields } from '../documents/read.js'
import { isValid, typeName } from '../documents/values.js'
import { updateMatching } from '../documents/write.js'
import { PUT_TO_SLEEP, sleepsFor } from '../lease/lease-state.js'
import { inProgress, LIFECYCLES_COLLECTION, type Terms } from '../terms/terms.js'
import { type CancelRequest, storedCancels } from './cancels.js'
import { type Pause, storedPauses } from './pauses.js'

/** The time after reading a lockTimeout that a replica judges by it; after that the server refuses its claims. */
export const KNOWN_FOR_MS = 5_000

/** The most time that the command that announces a change takes. */
const ANNOUNCED_WITHIN_MS = 3_000

/**
 * The time after the announcement of a change until no replica claims or takes a lease by the old value any more. It is the time for which a
 * replica may use the value that it has read, that of the announcing command itself, and 2 s of slack.
 */
export const HANDOVER_MS = KNOWN_FOR_MS + ANNOUNCED_WITHIN_MS + 2_000

/** The bounds of a lease: long enough to be renewed, and short enough that documents left by a crash are taken up within a day. */
const LEAST_MS = 1_000
const MOST_MS = 86_400_000

export const isLockTimeout = (ms: number): boolean => ms >= LEAST_MS && ms <= MOST_MS

/**
 * The projection of the settings in force in `phaselock.lifecycles`: a lifecycle's lockTimeout (ms), its pauses, and the steps that are to stop.
 * `Was` and `Since` are there after a change. `Instead` is there if `lockTimeout` is unusable: the value that was in force, which all replicas
 * use until that is mended.
 */
export const IN_FORCE_FIELDS = {
  lockTimeout: 1,
  lockTimeoutWas: 1,
  lockTimeoutSince: 1,
  lockTimeoutInstead: 1,
  pauses: 1,
  cancels: 1,
  definition: 1,
} as const

/** These fields as they are stored: a person may have put anything there. */
export type LockTimeoutRecord = { readonly [field in keyof typeof IN_FORCE_FIELDS]?: unknown }

const MS = '$lockTimeout'
/** Matches an entry whose `lockTimeout` is unusable. */
const HAS_NO_LOCK_TIMEOUT: Document = {
  $expr: { $not: [{ $and: [{ $isNumber: MS }, { $gte: [MS, LEAST_MS] }, { $lte: [MS, MOST_MS] }] }] },
}

/** The lockTimeout as a replica uses it, as of one moment of the server's clock. */
export interface LockTimeoutInForce {
  /** The value by which documents are judged due and sleeps are encoded. */
  readonly dueMs: number
  /** The time that a lease that is taken or renewed now lasts for its holder. */
  readonly leaseMs: number
  /** Server time: nothing is judged by this later. */
  readonly knownUntil: Date
  /** The unusable part of the entry. */
  readonly broken?: string
  /** Those that are stored, also if they are over. */
  readonly pauses: readonly Pause[]
  /** Requests of the last ten minutes, and older ones. */
  readonly cancels: readonly CancelRequest[]
  /** The digest of the definition that counts as the newest; absent: none is stored. */
  readonly definition?: string
}

/** A usable lockTimeout in ms; undefined for anything else. */
function soundMs(value: unknown): number | undefined {
  const isNumber = ['number', 'bigint'].includes(typeof value) || NUMBERS.has((value as Document | null)?.['_bsontype'])
  const ms = isNumber ? Number(String(value)) : Number.NaN
  return isLockTimeout(ms) ? ms : undefined
}
const NUMBERS: ReadonlySet<unknown> = new Set(['Int32', 'Long', 'Double', 'Decimal128'])

/** The judged content of an entry. */
interface Judged {
  readonly lockTimeout: number
  readonly change?: { readonly wasMs: number; readonly since: Date }
  readonly broken?: string
}

/** Judges an entry. Undefined: it has no usable value. */
function judge(record: LockTimeoutRecord, now: Date): Judged | undefined {
  const own = soundMs(record.lockTimeout)
  const lockTimeout = own ?? soundMs(record.lockTimeoutInstead)
  if (lockTimeout === undefined) return undefined
  const { lockTimeoutWas: was, lockTimeoutSince: since } = record
  const broken = (field: keyof LockTimeoutRecord, expected = `milliseconds from ${LEAST_MS} to ${MOST_MS}`) => ({
    lockTimeout,
    broken: `${field}: expected ${expected}, got ${shown(record[field])}`,
  })
  if (own === undefined) return broken('lockTimeout')
  if (was == null && since == null) return { lockTimeout }
  const wasMs = soundMs(was)
  if (wasMs === undefined) return broken('lockTimeoutWas')
  const isSound = since instanceof Date && since.getTime() <= now.getTime() + MOST_MS
  return isSound ? { lockTimeout, change: { wasMs, since } } : broken('lockTimeoutSince', 'a date in the past')
}

function shown(value: unknown): string {
  if (typeof value === 'string') return `the string '${value.slice(0, 40)}'`
  if (value instanceof Date && isValid(value)) return `the date ${value.toISOString()}`
  return typeof value === 'number' || typeof value === 'bigint' ? String(value) : typeName(value)
}

/**
 * The lockTimeout in force at a moment of the server's clock, even during a change. Until no replica uses the old value any more, others' leases
 * are judged by the larger value, and one's own is trusted for the smaller.
 *
 * Longer (30 s -> 60 s, announced at 0 s): judged by 60 s immediately; leases last 60 s from 10 s on, when no claim is judged by 30 s any more.
 * Shorter (60 s -> 30 s, announced at 0 s): leases last 30 s immediately; judged by 30 s from 70 s on, when no lease of 60 s is left.
 */
export function lockTimeoutAt(record: LockTimeoutRecord, now: Date): LockTimeoutInForce | undefined {
  const judged = judge(record, now)
  if (!judged) return undefined
  const { lockTimeout, change, broken } = judged
  const asked = { pauses: storedPauses(record.pauses), cancels: storedCancels(record.cancels) }
  const definition = typeof record.definition === 'string' ? { definition: record.definition } : {}
  const until = new Date(now.getTime() + KNOWN_FOR_MS)
  const known = { knownUntil: until, ...asked, ...definition, ...(broken && { broken }) }
  if (!change || now >= handoverUntil(lockTimeout, change))
    return { dueMs: lockTimeout, leaseMs: lockTimeout, ...known }
  return { dueMs: Math.max(lockTimeout, change.wasMs), leaseMs: Math.min(lockTimeout, change.wasMs), ...known }
}

/** Describes the problem of an entry, for people; undefined: no problem. */
export function brokenLockTimeout(record: LockTimeoutRecord, now: Date): string | undefined {
  return judge({ ...record, lockTimeoutInstead: LEAST_MS }, now)?.broken
}

/** The time when a change is over and fully in force. */
function handoverUntil(lockTimeout: number, { wasMs, since }: { wasMs: number; since: Date }): Date {
  const oldLeasesMs = lockTimeout < wasMs ? wasMs : 0
  return new Date(since.getTime() + HANDOVER_MS + oldLeasesMs)
}

/**
 * Reads the lockTimeouts of some lifecycles, with the server's time; a lifecycle that isn't registered, or whose entry has no usable value, is
 * absent.
 */
export async function readLockTimeouts(
  db: Db,
  lifecycles: readonly string[],
  options: { maxTimeMS?: number } = {},
): Promise<Map<string, LockTimeoutInForce & { readonly now: Date }>> {
  const records = await readRecords(db, lifecycles, options)
  return new Map(
    records.flatMap((record) => {
      const inForce = lockTimeoutAt(record, record.now)
      return inForce ? [[record._id, { ...inForce, now: record.now }]] : []
    }),
  )
}

/** A majority read. A lockTimeout that only a deposed primary has is undone: a lease of that length would be stolen. */
export const COMMITTED = { readConcern: { level: 'majority' } } as const

async function readRecords(db: Db, ids: readonly string[], options: { maxTimeMS?: number } = {}) {
  const pipeline = [{ $match: { _id: { $in: [...ids] } } }, { $project: { ...IN_FORCE_FIELDS, now: '$$NOW' } }]
  const lifecycles = lifecyclesOf(db)
  const reading = { ...options, ...COMMITTED }
  const records = await readOwnFields((how) => lifecycles.aggregate(pipeline, { ...reading, ...how }).toArray())
  return records as (LockTimeoutRecord & { _id: string; now: Date })[]
}

const lifecyclesOf = (db: Db): Collection<LockTimeoutRecord & { _id: string }> =>
  protocolCollection(db, LIFECYCLES_COLLECTION)

/** The result of a request to change a lockTimeout. */
export type LockTimeoutChange =
  | { readonly kind: 'changed'; readonly wasMs: number; readonly inForceFrom: Date; readonly now: Date }
  | { readonly kind: 'unchanged' }
  /** No replica has run this lifecycle yet. */
  | { readonly kind: 'notRegistered' }
  /** An earlier change isn't over. */
  | { readonly kind: 'underWay'; readonly until: Date; readonly now: Date }

/**
 * Gives an entry whose `lockTimeout` is unusable a stand-in, so that all replicas use the same: the value that was in force, from a replica that
 * knows it; else the setting of the first one to write.
 */
export async function standInForLockTimeout(
  db: Db,
  lifecycle: string,
  { inForceMs, settingMs }: { readonly inForceMs: number | undefined; readonly settingMs: number },
): Promise<void> {
  const ifMissing = { $nor: [{ lockTimeoutInstead: { $gte: LEAST_MS, $lte: MOST_MS } }] }
  await lifecyclesOf(db).updateOne(
    { _id: lifecycle, ...HAS_NO_LOCK_TIMEOUT, ...(inForceMs === undefined ? ifMissing : {}) },
    { $set: { lockTimeoutInstead: inForceMs ?? settingMs } } as Document,
  )
}

/**
 * Announces a new lockTimeout for a lifecycle; replicas hand over on their own (see {@link lockTimeoutAt}). One change at a time, because that
 * function knows only two values.
 */
export async function changeLockTimeout(db: Db, lifecycle: string, ms: number): Promise<LockTimeoutChange> {
  const [found] = await readRecords(db, [lifecycle])
  if (!found) return { kind: 'notRegistered' }
  const judged = judge(found, found.now)
  const until = judged?.change && handoverUntil(judged.lockTimeout, judged.change)
  if (until && found.now < until) return { kind: 'underWay', until, now: found.now }
  if (judged?.lockTimeout === ms && !judged.broken) return { kind: 'unchanged' }
  // No replica uses an entry without a usable value: one that sees it gives it a stand-in first.
  const wasMs = judged?.lockTimeout ?? ms
  const changed = await lifecyclesOf(db).findOneAndUpdate(
    { _id: lifecycle, ...unchanged(found, judged) },
    [{ $set: { lockTimeoutWas: wasMs, lockTimeout: ms, lockTimeoutSince: '$$NOW', lockTimeoutInstead: '$$REMOVE' } }],
    { returnDocument: 'after', maxTimeMS: ANNOUNCED_WITHIN_MS, projection: { lockTimeoutSince: 1 } },
  )
  if (!changed) return changeLockTimeout(db, lifecycle, ms)
  const since = changed.lockTimeoutSince as Date
  return { kind: 'changed', wasMs, inForceFrom: handoverUntil(ms, { wasMs, since }), now: since }
}

/** Matches if no one else has changed or mended it since. */
function unchanged({ lockTimeout, lockTimeoutSince }: LockTimeoutRecord, judged: Judged | undefined): Document {
  if (soundMs(lockTimeout) === undefined) return HAS_NO_LOCK_TIMEOUT
  return judged?.broken ? { lockTimeout } : { lockTimeout, lockTimeoutSince: lockTimeoutSince ?? null }
}

/**
 * Keeps the waking times of sleeping documents after a lockTimeout has become longer: else each would sleep longer by the difference. Only
 * documents that Phaselock put to sleep (`resumeAt` = `lockedAt` + the old lockTimeout) are touched.
 * @param terms with the new lockTimeout
 * @returns the number of documents that were changed
 */
export async function encodeSleepsAnew(
  collection: Collection,
  terms: Terms,
  phases: readonly string[],
  wasMs: number,
): Promise<number> {
  const resumeAt = inProgress(terms, 'resumeAt')
  const asleep = { phase: { $in: [...phases] }, ...PUT_TO_SLEEP, $expr: sleepsFor(terms, wasMs) }
  return updateMatching(collection, asleep, [{ $set: { lockedAt: { $subtract: [resumeAt, terms.lockTimeoutMs] } } }])
}
