import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { readOwnFields } from '../documents/read.js'
import { isNumber, isValid, typeName } from '../documents/values.js'
import { MOST_PAUSES } from '../registry/in-force.js'
import {
  endExpression,
  endOf,
  type NewPause,
  ownerMeant,
  pausesBeside,
  type Resuming,
  storePauses,
  withoutPause,
  withPause,
} from '../registry/pauses.js'
import { LIFECYCLES_COLLECTION, LIMITS_COLLECTION, literal } from '../terms/terms.js'

/** The rate of a limit: the documents that may begin in a span of time. */
export interface Rate {
  /** The number of documents. */
  readonly starts: number
  /** The span in milliseconds. */
  readonly perMs: number
}

/** A replica's share of a limit: a lease like a document's. Times are the server's. */
export interface SlotHolder {
  /** Its identity. */
  readonly by: string
  /** The number of slots it has, used or not. */
  readonly slots: number
  /** The end of its lease unless it is renewed. */
  readonly until: Date
}

/** A pause of a limit: nothing that needs it begins. Times are the server's. */
export interface PausedLimit {
  /** The person who has paused it. */
  readonly by: string
  /** The reason given; null: none. */
  readonly reason: string | null
  /** The time of the pause. */
  readonly since: Date
  /** The time when it ends without a resume; null: it needs one. */
  readonly until: Date | null
  /** Pauses of the same limit by others, which end sooner; absent: none. */
  readonly others?: readonly PausedLimit[]
}

/** The state of a limit. */
export interface Limit {
  /** The name by which lifecycles need it. */
  readonly name: string
  /** The number of slots; null: no bound (it has a rate only). */
  readonly slots: number | null
  /** The speed at which documents may begin; null: any. */
  readonly rate: Rate | null
  /** The pause that lasts longest; null: it isn't paused. */
  readonly paused: PausedLimit | null
  /** The holders whose leases aren't over. */
  readonly holders: readonly SlotHolder[]
  /** The part of its document that a person has damaged, and what is expected there; null: nothing. */
  readonly damaged: string | null
}

/** The most slots of a limit, and starts of a rate. */
export const MOST_SLOTS = 1_000_000

type Limits = Collection<Document & { _id: string }>
/** @internal */
export const limitsOf = (db: Db): Limits => protocolCollection(db, LIMITS_COLLECTION)

/** The limit of each value of a field, unless a person sets something else for one of them. */
export interface KeyLimit {
  /** Absent: any number. */
  readonly slots?: number | undefined
  readonly rate?: Rate | undefined
}

/** Makes a document the limit of a key. A rate that a person has set stands. @internal */
export function declaredBy({ slots, rate }: KeyLimit): Document {
  const isDeclared = { $or: [{ $eq: [{ $type: '$rate' }, 'missing'] }, { $eq: ['$rate', '$declaredRate'] }] }
  return {
    $set: {
      key: true,
      declared: slots ?? '$$REMOVE',
      declaredRate: rate ? literal(rate) : '$$REMOVE',
      rate: { $cond: [isDeclared, rate ? literal(rate) : '$$REMOVE', '$rate'] },
    },
  }
}

/** The mark of a removed limit, to be unset. */
const NOT_REMOVED = { removed: '' } as const

/** Stands for the holders of a limit whose document was deleted. */
export const HOLDERS_BEFORE = 'holders from before its document was deleted'

/**
 * The holders of a limit that is declared, as an expression. A deleted document took its holders along: all slots count as taken for half a lease,
 * because each live holder asks again within a third of its own.
 * @internal
 */
export function holdersBefore(slots: number, leaseMs: number): Document {
  const isNew = { $eq: [{ $size: { $objectToArray: '$$ROOT' } }, 1] }
  const ms = Math.ceil(leaseMs / 2)
  const before = { by: HOLDERS_BEFORE, slots, ms, until: { $add: ['$$NOW', ms] } }
  return { $cond: [isNew, [before], { $ifNull: ['$holders', '$$REMOVE'] }] }
}

/**
 * What a replica declares of a limit that its lifecycles name with a number of slots, before it registers them. What a person has set stands.
 * Invariant: a limit without a document is new only where no registered lifecycle declares it: else others may still have slots of it.
 */
export async function declareLimit(db: Db, name: string, slots: number): Promise<void> {
  const update = { $set: { declared: slots }, $unset: NOT_REMOVED }
  const { matchedCount } = await limitsOf(db).updateOne({ _id: name }, update)
  if (matchedCount > 0) return
  const leaseMs = await leaseBefore(db, name)
  const again = leaseMs === undefined ? {} : { holders: holdersBefore(slots, leaseMs) }
  const made = { $set: { declared: slots, removed: '$$REMOVE', ...again } }
  await limitsOf(db).updateOne({ _id: name }, [made], { upsert: true })
}

/** The longest lease of slots that replicas may have of a limit that was declared before; undefined: it wasn't. */
async function leaseBefore(db: Db, name: string): Promise<number | undefined> {
  const declares = { $in: [literal(name), { $ifNull: ['$declaredLimits.limit', []] }] }
  const isBefore = { $cond: [{ $isArray: '$declaredLimits' }, declares, false] }
  const longest = { $max: { $cond: [{ $isNumber: '$lockTimeout' }, '$lockTimeout', 0] } }
  const [found] = await protocolCollection(db, LIFECYCLES_COLLECTION)
    .aggregate<{ leaseMs: number; isBefore: boolean }>([
      { $group: { _id: null, leaseMs: longest, isBefore: { $max: isBefore } } },
    ])
    .toArray()
  return found?.isBefore ? Math.min(Number(found.leaseMs), LONGEST_LEASE_MS) : undefined
}

/** Of whatever a person has put there. */
const LONGEST_LEASE_MS = 86_400_000

/** A person's setting; null: the replicas' declaration is in force again, or there is no rate. */
export interface LimitSetting {
  readonly slots?: number | null | undefined
  readonly rate?: Rate | null | undefined
}

/**
 * Sets a limit, which exists from then on; values that aren't given stay. In force with each replica's next request. A limit whose
 * settings are all taken back has what lifecycles declare, or limits nothing: `declared` is null then.
 */
export async function setLimit(db: Db, name: string, { slots, rate }: LimitSetting): Promise<Limit> {
  const given = Object.entries({ slots, rate }).filter(([, value]) => value !== undefined)
  const set = given.map(([field, value]) => [field, value === null ? '$$REMOVE' : literal(value)])
  const declared = given.some(([, value]) => value === null)
    ? { declared: { $cond: [{ $isNumber: '$declared' }, '$declared', null] } }
    : {}
  const update = [{ $set: { ...Object.fromEntries(set), ...declared, removed: '$$REMOVE' } }]
  await limitsOf(db).updateOne({ _id: name }, update, { upsert: true })
  return (await readLimits(db, [name])).limits[0]!
}

/** A pause that is over stays for a day: by a server's clock that is ahead for a moment it only seems to be over. */
const KEPT_OVER_MS = 86_400_000
/** All pauses in force, one for each person. */
const pausesInForce = pausesBeside([])
const pausesKept = pausesBeside([], KEPT_OVER_MS)

/** The outcome of a request to pause a limit. */
export type LimitPauseVerdict =
  | { readonly kind: 'paused'; readonly pause: PausedLimit; readonly before: readonly PausedLimit[] }
  | { readonly kind: 'noLimit' }
  /** It has {@link MOST_PAUSES} already. */
  | { readonly kind: 'tooMany' }

/**
 * Pauses a limit: nothing that needs it begins; running steps may end. An earlier pause by the same person is replaced.
 * @param key the limit of each key, where it is one: its document is made if no replica uses it
 */
export async function pauseLimit(
  db: Db,
  name: string,
  { by, reason, end }: Pick<NewPause, 'by' | 'reason' | 'end'>,
  key?: KeyLimit,
): Promise<LimitPauseVerdict> {
  const pause = { reason: literal(reason), since: '$$NOW', until: endExpression(end) }
  const made = key ? [declaredBy(key), { $set: { askedAt: '$$NOW' } }] : []
  const before = await limitsOf(db).findOneAndUpdate(
    { _id: name },
    [...made, ...storePauses(withPause(pausesInForce, by, pause, pausesKept))],
    {
      ...{ upsert: key !== undefined, returnDocument: 'before' },
      projection: { pauses: pausesInForce, now: '$$NOW' },
    },
  )
  const now = (before?.['now'] as Date | undefined) ?? (await readLimits(db, [name])).limits[0]?.paused?.since
  if (!now) return { kind: 'noLimit' }
  const known = pausesAmong(before?.['pauses'])
  if (known.filter((one) => one.by !== by).length >= MOST_PAUSES) return { kind: 'tooMany' }
  return { kind: 'paused', pause: { by, reason, since: now, until: endOf(end, now) }, before: known }
}

/** Ends one pause of a limit; undefined: there was none in force. `ended`: undefined if only pauses of others are in force. */
export async function resumeLimit(
  db: Db,
  name: string,
  whose: Resuming = {},
): Promise<{ readonly before: readonly PausedLimit[]; readonly ended: PausedLimit | undefined } | undefined> {
  const update = storePauses(withoutPause(pausesInForce, whose, pausesKept))
  const found = await limitsOf(db).findOneAndUpdate({ _id: name }, update, {
    returnDocument: 'before',
    projection: { pauses: pausesInForce },
  })
  const before = pausesAmong(found?.['pauses'])
  const owner = ownerMeant(
    before.map(({ by }) => by),
    whose,
  )
  return before.length === 0 ? undefined : { before, ended: before.find(({ by }) => by === owner) }
}

/** All pauses of a limit, the one that lasts longest first. */
export const pausesOfLimit = (paused: PausedLimit | null): readonly PausedLimit[] => {
  if (!paused) return []
  const { others = [], ...longest } = paused
  return [longest, ...others]
}

/** Puts a pause of a limit in words: `gitlab-api: paused by ana until 2026-12-01T08:00:00.000Z: they have asked us to`. */
export const pausedLimitText = (name: string, { by, reason, until }: Omit<PausedLimit, 'since'>): string =>
  `${name}: paused by ${by}${until ? ` until ${until.toISOString()}` : ''}${reason === null ? '' : `: ${reason}`}`

/** Reads limits by name. @param which default: all; `shared`: those that aren't of a key */
export async function readLimits(
  db: Db,
  which?: readonly string[] | 'shared',
): Promise<{ readonly limits: readonly Limit[]; readonly now: Date | undefined }> {
  const filter = which === 'shared' ? { key: { $ne: true } } : which && { _id: { $in: [...which] } }
  const match = filter ? [{ $match: filter }] : []
  const pipeline = [...match, { $sort: { _id: 1 } }, { $project: { _id: 0, document: '$$ROOT', now: '$$NOW' } }]
  const rows = await readOwnFields((how) => limitsOf(db).aggregate(pipeline, how).toArray())
  const limits = rows
    .map(({ document, now }) => ({ limit: limitOf(document, now), isRemoved: document['removed'] === true }))
    // A removed limit is there for as long as its slots are in use.
    .filter(({ limit, isRemoved }) => !isRemoved || limit.slots !== 0 || limit.holders.length > 0)
  return { limits: limits.map(({ limit }) => limit), now: rows[0]?.['now'] }
}

/** Reads a stored limit. A person may have put anything there: one without a sound number of slots has none. @internal */
export function limitOf(document: Document, now: Date): Limit {
  const { _id, slots, declared, rate, holders, paused, pauses } = document
  const total = [slots, declared].map(soundCount).find((count) => count !== undefined)
  const sound = rateOf(rate)
  const isOddRate = rate != null && !sound
  const oddSlots = slots != null && soundCount(slots) === undefined
  return {
    name: String(_id),
    slots: isOddRate ? 0 : (total ?? (sound || declared === null ? null : 0)),
    rate: sound,
    damaged: isOddRate
      ? `rate: expected { starts, perMs }, two numbers, got ${typeName(rate)}`
      : oddSlots
        ? `slots: expected a whole number from 0 to ${MOST_SLOTS}, got ${typeName(slots)}`
        : null,
    paused: withOthers(pausedOf(paused, now), pauses, now),
    holders: (Array.isArray(holders) ? holders : []).filter((one): one is SlotHolder => isHolder(one, now)),
  }
}

/** Reads a count as the server takes it. */
const soundCount = (value: unknown): number | undefined => {
  const count = isNumber(value) ? Number(value) : Number.NaN
  return count >= 0 && count <= MOST_SLOTS ? Math.floor(count) : undefined
}

function rateOf(rate: unknown): Rate | null {
  const { starts, perMs } = (rate ?? {}) as Record<string, unknown>
  const count = soundCount(starts)
  return count !== undefined && typeof perMs === 'number' && perMs > 0 ? { starts: count, perMs } : null
}

/** Reads a pause as the server takes it: without a sound end it lasts until a user resumes it. */
function pausedOf(paused: unknown, now: Date): PausedLimit | null {
  if (typeof paused !== 'object' || paused === null || Array.isArray(paused) || paused instanceof Date) return null
  const { by, reason, since, until } = paused as Record<string, unknown>
  const isDated = until instanceof Date
  if (isDated && !(until > now)) return null
  return {
    by: typeof by === 'string' ? by : '?',
    reason: typeof reason === 'string' ? reason : null,
    since: since instanceof Date ? since : new Date(0),
    until: isDated ? until : null,
  }
}

const pausesAmong = (stored: unknown, now = new Date(0)): PausedLimit[] =>
  Array.isArray(stored) ? stored.flatMap((one) => pausedOf(one, now) ?? []) : []

/** As pauses.ts says: they count while `paused` is one of them. */
function withOthers(paused: PausedLimit | null, stored: unknown, now: Date): PausedLimit | null {
  const all = pausesAmong(stored, now)
  const isAmong = all.some(({ by, since }) => by === paused?.by && since.getTime() === paused.since.getTime())
  const others = isAmong ? all.filter(({ by }) => by !== paused?.by) : []
  return paused && others.length > 0 ? { ...paused, others } : paused
}

function isHolder(one: unknown, now: Date): boolean {
  const { by, slots, until } = (one ?? {}) as Record<string, unknown>
  return (
    typeof by === 'string' && (soundCount(slots) ?? 0) > 0 && until instanceof Date && isValid(until) && until > now
  )
}
