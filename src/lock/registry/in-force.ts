import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { COMMITTED, readOwnFields } from '../documents/read.js'
import { canBeId } from '../documents/storable.js'
import { idKey, idText, isValid, typeName } from '../documents/values.js'
import { KNOWN_FOR_MS } from '../lease/server-clock.js'
import { LIFECYCLES_COLLECTION } from '../terms/terms.js'
import { type CensusReader, WATCHED_FIELDS, watchedBy } from './census-looks.js'

/* What is in force for a lifecycle, as its entry in `phaselock.lifecycles` says: its lockTimeout, its pauses, and the steps that are to stop. */

/** The most time that the command that announces a change takes. */
export const ANNOUNCED_WITHIN_MS = 3_000

/**
 * The time after the announcement of a change until no replica claims or takes a lease by the old value any more. It is the time for which a
 * replica may use the value that it has read, that of the announcing command itself, and 2 s of slack.
 */
export const HANDOVER_MS = KNOWN_FOR_MS + ANNOUNCED_WITHIN_MS + 2_000

/** The bounds of a lease: long enough to be renewed, and short enough that documents left by a crash are taken up within a day. */
export const LEAST_MS = 1_000
export const MOST_MS = 86_400_000

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
  ...WATCHED_FIELDS,
} as const

/** These fields as they are stored: a person may have put anything there. */
export type LockTimeoutRecord = { readonly [field in keyof typeof IN_FORCE_FIELDS]?: unknown }

const MS = '$lockTimeout'
/** Matches an entry whose `lockTimeout` is unusable. */
export const HAS_NO_LOCK_TIMEOUT: Document = {
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
  /** What looks at its census; absent: nothing does. */
  readonly watched?: CensusReader
}

/** A usable lockTimeout in ms; undefined for anything else. */
export function soundMs(value: unknown): number | undefined {
  const isNumber = ['number', 'bigint'].includes(typeof value) || NUMBERS.has((value as Document | null)?.['_bsontype'])
  const ms = isNumber ? Number(String(value)) : Number.NaN
  return isLockTimeout(ms) ? ms : undefined
}
const NUMBERS: ReadonlySet<unknown> = new Set(['Int32', 'Long', 'Double', 'Decimal128'])

/** The judged content of an entry. */
export interface Judged {
  readonly lockTimeout: number
  readonly change?: { readonly wasMs: number; readonly since: Date }
  readonly broken?: string
}

/** Judges an entry. Undefined: it has no usable value. */
export function judge(record: LockTimeoutRecord, now: Date): Judged | undefined {
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
  const watched = watchedBy(record, now)
  const known = { knownUntil: until, ...asked, ...definition, ...(broken && { broken }), ...(watched && { watched }) }
  if (!change || now >= handoverUntil(lockTimeout, change))
    return { dueMs: lockTimeout, leaseMs: lockTimeout, ...known }
  return { dueMs: Math.max(lockTimeout, change.wasMs), leaseMs: Math.min(lockTimeout, change.wasMs), ...known }
}

/** Describes the problem of an entry, for people; undefined: no problem. */
export function brokenLockTimeout(record: LockTimeoutRecord, now: Date): string | undefined {
  return judge({ ...record, lockTimeoutInstead: LEAST_MS }, now)?.broken
}

/** The time when a change is over and fully in force. */
export function handoverUntil(lockTimeout: number, { wasMs, since }: { wasMs: number; since: Date }): Date {
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

export async function readRecords(db: Db, ids: readonly string[], options: { maxTimeMS?: number } = {}) {
  const pipeline = [{ $match: { _id: { $in: [...ids] } } }, { $project: { ...IN_FORCE_FIELDS, now: '$$NOW' } }]
  const lifecycles = lifecyclesOf(db)
  const reading = { ...options, ...COMMITTED }
  const records = await readOwnFields((how) => lifecycles.aggregate(pipeline, { ...reading, ...how }).toArray())
  return records as (LockTimeoutRecord & { _id: string; now: Date })[]
}

/** The entries of lifecycles: a person may have put anything there. */
export const lifecyclesOf = (db: Db): Collection<Document & { _id: string }> =>
  protocolCollection(db, LIFECYCLES_COLLECTION)

/**
 * The target of a pause. `all` is a pause of every lifecycle that there was then, and is resumed as such: it neither ends nor replaces a
 * lifecycle's own pause.
 */
export type PauseTarget =
  | { readonly what: 'all' | 'lifecycle' }
  | { readonly what: 'phase'; readonly phase: string }
  | { readonly what: 'document'; readonly _id: unknown }

/** A pause as it is in force. Times are the server's. */
export type Pause = PauseTarget & {
  readonly by: string
  readonly reason: string | null
  readonly since: Date
  /** The time when it ends without a resume; null: it needs one. */
  readonly until: Date | null
}

/** The most pauses of one lifecycle at a time: each look and claim leaves out the documents by name. */
export const MOST_PAUSES = 200

/** Reads the stored pauses, including those that are over. A person may have put anything there: other values pause nothing. */
export function storedPauses(stored: unknown): readonly Pause[] {
  if (!Array.isArray(stored)) return []
  return stored.slice(0, MOST_PAUSES).flatMap((one): Pause[] => {
    const target = targetOf(one)
    if (!target) return []
    const { by, reason, since, until } = one as Document
    return [
      {
        ...target,
        by: textOr(by, '?'),
        reason: textOr(reason, null),
        since: dateOr(since, new Date(0)),
        until: dateOr(until, null),
      },
    ]
  })
}

function targetOf(one: unknown): PauseTarget | undefined {
  const { what, phase, _id } = (one ?? {}) as Document
  if (what === 'all' || what === 'lifecycle') return { what }
  if (what === 'phase') return typeof phase === 'string' ? { what, phase } : undefined
  return what === 'document' && canBeId(_id) ? { what, _id } : undefined
}

const textOr = <Else>(value: unknown, otherwise: Else) => (typeof value === 'string' ? value : otherwise)
const dateOr = <Else>(value: unknown, otherwise: Else) => (value instanceof Date && isValid(value) ? value : otherwise)

/** True if it is in force at a time of the server's. */
export const isInForce = ({ until }: Pause, now: Date): boolean => until === null || until > now

/** A pause in one line: `order, phase Packing: paused by ana until 2026-12-01T08:00:00.000Z: the printer is broken`. */
export function pauseText(lifecycle: string, pause: Pause): string {
  const until = pause.until ? ` until ${pause.until.toISOString()}` : ''
  return `${pauseTarget(lifecycle, pause)}: paused by ${pause.by}${until}${pause.reason === null ? '' : `: ${pause.reason}`}`
}

/** Puts the target of a pause in words: `order, phase Packing`. */
export function pauseTarget(lifecycle: string, target: PauseTarget): string {
  if (target.what === 'phase') return `${lifecycle}, phase ${target.phase}`
  return target.what === 'document' ? `${lifecycle} ${idText(target._id)}` : lifecycle
}

/** The paused parts of a lifecycle at one moment. */
export class Paused {
  static readonly nothing = new Paused([])
  /** The ids of single documents. */
  readonly ids: readonly unknown[]
  /** True if the whole lifecycle is paused. */
  readonly isWhole: boolean
  private readonly phases: ReadonlySet<string>
  private readonly keys: ReadonlySet<string>

  constructor(readonly pauses: readonly Pause[]) {
    this.ids = pauses.flatMap((pause) => (pause.what === 'document' ? [pause._id] : []))
    this.isWhole = pauses.some(({ what }) => what === 'all' || what === 'lifecycle')
    this.phases = new Set(pauses.flatMap((pause) => (pause.what === 'phase' ? [pause.phase] : [])))
    this.keys = new Set(this.ids.map(idKey))
  }

  /** The pauses that a document is under, the widest first. */
  of(phase: unknown, id: unknown): readonly Pause[] {
    const { pauses } = this
    return [
      ...pauses.filter(({ what }) => what === 'all' || what === 'lifecycle'),
      ...pauses.filter((pause) => pause.what === 'phase' && pause.phase === phase),
      ...pauses.filter((pause) => pause.what === 'document' && idKey(pause._id) === idKey(id)),
    ]
  }

  /** True if no document of a phase may be worked on. */
  has(phase: string): boolean {
    return this.isWhole || this.phases.has(phase)
  }

  /** True if a document in a phase may not be worked on. */
  hasDocument(phase: string, id: unknown): boolean {
    return this.has(phase) || (this.keys.size > 0 && this.keys.has(idKey(id)))
  }
}

/** A request to stop the work on one document under one claim; it doesn't affect any other claim of it. */
export interface CancelRequest {
  readonly _id: unknown
  /** The claim in the token that held it: `api-1~5f3a9c#1842`, at any step of the claim. */
  readonly claim: string
  /** The person who asked. */
  readonly by: string
  readonly reason: string | null
}

/** The most requests of one lifecycle at a time. */
export const MOST_CANCELS = 200
/** Reads the stored requests. A person may have put anything there: other values are passed over. */
export function storedCancels(stored: unknown): readonly CancelRequest[] {
  if (!Array.isArray(stored)) return []
  return stored.slice(0, MOST_CANCELS).flatMap((one): CancelRequest[] => {
    const { _id, claim, by, reason } = (one ?? {}) as Document
    if (_id === undefined || typeof claim !== 'string') return []
    const asked = typeof by === 'string' ? by : '?'
    return [{ _id, claim, by: asked, reason: typeof reason === 'string' ? reason : null }]
  })
}

/** The name of the error that a cancel leaves in its document. */
export const CANCELLED = 'Cancelled'

/** Puts a request in words: `cancelled by ana: stuck`. */
export const cancelText = ({ by, reason }: Pick<CancelRequest, 'by' | 'reason'>): string =>
  `cancelled by ${by}${reason === null ? '' : `: ${reason}`}`
