import type { Db, Document } from 'mongodb'
import { isServerError } from '../../database/index.js'
import { ID_INDEX, literal } from '../terms/terms.js'
import { declaredBy, holdersBefore, type KeyLimit, type Limit, limitOf, limitsOf, MOST_SLOTS } from './limits.js'

/** A replica's request to a limit. It states everything, so that the outcome is known whatever happened to earlier requests. */
export interface SlotRequest {
  readonly by: string
  /** Slots in use, with documents held under them: these it has in any case. */
  readonly inUse: number
  /** The number of slots beyond those that it would take. */
  readonly slots: number
  /** The slots that a document needs: it is granted a multiple of them. Default 1. */
  readonly each?: number
  /** The number of documents it would begin; below 0: the number of granted starts that it gives back unused. */
  readonly starts: number
  readonly leaseMs: number
  /** Greater than in its requests before: one that arrives late changes nothing. */
  readonly turn: number
  /**
   * A time by the server's clock. Executed later, the request gets nothing more than it has in use, and ends no other lease. That
   * clock may have stepped forward, so that leases of others only seem to be over. Absent: always valid.
   */
  readonly validUntil?: Date | undefined
  /** The limit of a key, which exists while a replica uses it: its values where no one has set it. */
  readonly key?: KeyLimit | undefined
  /** The slots that a lifecycle declares: stored where the document states none; a document that is gone is made again. Absent: none declared. */
  readonly declared?: number | undefined
}

/** The grant to a replica. */
export interface SlotGrant {
  /** Slots in all, those in use included, until the lease ends. */
  readonly slots: number
  readonly starts: number
  readonly limit: Limit
  /** True if other replicas want some and have less than an equal share. */
  readonly othersWait: boolean
  /** True if it waits for some, before all others that do. */
  readonly isNext: boolean
  /** True if it got less than it asked for, and has no more than its share: asked again, it gets more only if others give some back. */
  readonly isShort: boolean
}

const isCount = (path: string): Document => ({
  $and: [{ $isNumber: path }, { $gte: [path, 0] }, { $lte: [path, MOST_SLOTS] }],
})
const countOr = (path: string, otherwise: Document | number | null): Document => ({
  $cond: [isCount(path), { $floor: path }, otherwise],
})
const isRate: Document = {
  $and: [isCount('$rate.starts'), { $isNumber: '$rate.perMs' }, { $gt: ['$rate.perMs', 0] }],
}
/** True if a person has put something else there: nothing begins then, because it was meant to be slow. */
const isOddRate: Document = { $and: [{ $ne: [{ $ifNull: ['$rate', null] }, null] }, { $not: [isRate] }] }
const isPaused: Document = {
  $and: [
    { $eq: [{ $type: '$paused' }, 'object'] },
    { $or: [{ $ne: [{ $type: '$paused.until' }, 'date'] }, { $gt: ['$paused.until', '$$NOW'] }] },
  ],
}
/** True if a person has taken back its setting, and no replica has declared any: it limits nothing. */
const isUnlimited: Document = { $eq: [{ $type: '$declared' }, 'null'] }
/** The slots that a person set, else those that the replica that started last declares. Without either there are 0, but with a rate any number. */
const SLOTS: Document = countOr(
  '$slots',
  countOr('$declared', { $cond: [{ $or: [isRate, isUnlimited] }, MOST_SLOTS, 0] }),
)
const TOTAL: Document = { $cond: [{ $or: [isPaused, isOddRate] }, 0, SLOTS] }
const HOLDERS: Document = { $cond: [{ $isArray: '$holders' }, '$holders', []] }
const isLease: Document = { $and: [{ $eq: [{ $type: '$$this.until' }, 'date'] }, isCount('$$this.slots')] }
const isLeased: Document = { $and: [isLease, { $gt: ['$$this.until', '$$NOW'] }] }

/** The end of a lease: never further from now than when it was taken. After the clock was set back it otherwise would be. */
const UNTIL: Document = {
  $cond: [{ $isNumber: '$$this.ms' }, { $min: ['$$this.until', { $add: ['$$NOW', '$$this.ms'] }] }, '$$this.until'],
}

/** The time that a holder goes on with its slots; then they are kept for waiting replicas, first come, first served, that ask within `ASKS_WITHIN_MS`. */
const TURN_MS = 1_000
const ASKS_WITHIN_MS = 3_000

const WAITING: Document = { $cond: [{ $isArray: '$waiting' }, '$waiting', []] }
/** The start of its wait; not later than now, should the clock have been set back. */
const since = (entry: string): Document => ({
  $min: ['$$NOW', { $cond: [{ $eq: [{ $type: `${entry}.since` }, 'date'] }, `${entry}.since`, '$$NOW'] }],
})
/** True if it has asked lately: a replica that got less than an equal share asks again within a second. */
const hasAskedOfLate: Document = {
  $and: [
    { $eq: [{ $type: '$$this.at' }, 'date'] },
    { $gt: ['$$this.at', { $subtract: ['$$NOW', ASKS_WITHIN_MS] }] },
    // A command's time is that of its begin: one that is executed before this one may have begun after it.
    { $lte: ['$$this.at', { $add: ['$$NOW', ASKS_WITHIN_MS] }] },
  ],
}

/**
 * Takes, renews or gives back slots and starts of a limit in one update that the server judges; undefined: there is no such limit,
 * and none is declared.
 *
 * Invariant: its grants never lease more slots than the limit has at that moment. A holder keeps what it has in use, so after the
 * limit was lowered nothing is granted until enough has been given back. While several replicas want more than there is, each gets
 * an equal share. One that has waited for a second gets the next free slots, so that no replica waits for longer than the others
 * have a turn each.
 */
export async function askForSlots(db: Db, name: string, request: SlotRequest): Promise<SlotGrant | undefined> {
  const upsert = request.declared !== undefined
  const options = { returnDocument: 'after', maxTimeMS: 5_000, upsert } as const
  const stored = await limitsOf(db).findOneAndUpdate({ _id: name }, slotUpdate(request), options)
  return stored ? grantOf(stored, request) : undefined
}

/**
 * The same for the limits of keys, which are made where they aren't there. Requests for the same are one update of many documents:
 * a thousand separate updates take this process a second and a half to write down.
 */
export async function askForKeys(
  db: Db,
  requests: ReadonlyMap<string, SlotRequest>,
): Promise<ReadonlyMap<string, SlotGrant>> {
  // A request that only gives back makes none: it may name keys that are gone already, together with others that are still needed.
  const isNew = ([, { inUse, slots, starts }]: [string, SlotRequest]) => inUse === 0 && (slots > 0 || starts > 0)
  await makeKeys(
    db,
    [...requests].filter(isNew).map(([name]) => name),
  )
  const grants = await askedForKeys(db, requests)
  // In use, and not there: a user has removed them, or this replica's leases were taken for over.
  const gone = [...requests].filter(([name, { inUse }]) => inUse > 0 && !grants.has(name))
  if (gone.length === 0) return grants
  await makeKeys(
    db,
    gone.map(([name]) => name),
  )
  return new Map([...grants, ...(await askedForKeys(db, new Map(gone)))])
}

/** Makes the documents of keys. Nothing rests on it: the update that follows is what counts. */
async function makeKeys(db: Db, names: readonly string[]): Promise<void> {
  if (names.length === 0) return
  const made = names.map((_id) => ({ _id, key: true }))
  const options = { ordered: false, writeConcern: { w: 1 } } as const
  await limitsOf(db)
    .insertMany(made, options)
    .catch((error: unknown) => {
      if (!isServerError(error, DUPLICATE_KEY)) throw error
    })
}

async function askedForKeys(
  db: Db,
  requests: ReadonlyMap<string, SlotRequest>,
): Promise<ReadonlyMap<string, SlotGrant>> {
  const limits = limitsOf(db)
  const alike = Map.groupBy(requests, ([, request]) => JSON.stringify(request))
  const updates = [...alike.values()].map((some) => {
    const filter = { _id: { $in: some.map(([name]) => name) } }
    return { updateMany: { filter, update: slotUpdate(some[0]![1]), hint: ID_INDEX } }
  })
  await limits.bulkWrite(updates, { ordered: false, maxTimeMS: 5_000 })
  const names = [...requests.keys()]
  const reading = { maxTimeMS: 5_000, batchSize: names.length + 1 }
  const stored = await limits.find({ _id: { $in: names } }, reading).toArray()
  return new Map(stored.map((one) => [one._id, grantOf(one, requests.get(one._id)!)]))
}

function grantOf(stored: Document, { by, turn, inUse, slots: wanted, each = 1 }: SlotRequest): SlotGrant {
  const mine = (stored['holders'] as Document[] | undefined)?.find((one) => one?.['by'] === by && one['turn'] === turn)
  const waiting = Array.isArray(stored['waiting']) ? (stored['waiting'] as (Document | null)[]) : []
  const waited = waiting.find((one) => one?.['by'] === by)
  const others = waiting.filter((one) => one?.['by'] !== by)
  const isNext = waited != null && others.length > 0 && others.every((one) => !(one?.['since'] < waited['since']))
  const slots: number = mine?.['slots'] ?? 0
  const limit = limitOf(stored, stored['askedAt'] ?? new Date(0))
  const total = limit.slots ?? MOST_SLOTS
  const share = Math.max(each, Math.ceil(total / (1 + others.length)))
  const free = total - limit.holders.reduce((sum, one) => sum + one.slots, 0)
  return {
    ...{ slots, starts: mine?.['starts'] ?? 0, limit },
    ...{ othersWait: others.length > 0, isNext },
    isShort: slots < inUse + wanted && slots <= share && Math.min(free, share - slots) < each,
  }
}

function slotUpdate(request: SlotRequest): Document[] {
  const { by, inUse, slots, each = 1, starts, leaseMs, turn, validUntil, key, declared } = request
  const isValid = validUntil === undefined || { $lte: ['$$NOW', validUntil] }
  const isOthers = { $and: [{ $cond: [isValid, isLeased, isLease] }, { $ne: ['$$this.by', literal(by)] }] }
  const leased = { $filter: { input: HOLDERS, cond: isOthers } }
  const others = { $map: { input: leased, in: { $mergeObjects: ['$$this', { until: UNTIL }] } } }
  const hasWaited = { $and: [hasAskedOfLate, { $eq: ['$$this.by', literal(by)] }] }
  const waited = { $first: { $filter: { input: WAITING, cond: hasWaited } } }
  const isAnother = { $and: [hasAskedOfLate, { $ne: ['$$this.by', literal(by)] }] }
  const own = { $first: { $filter: { input: HOLDERS, cond: { $eq: ['$$this.by', literal(by)] } } } }
  const taken = { $sum: { $map: { input: '$$others', in: '$$this.slots' } } }
  const waitedMs = { $subtract: ['$$NOW', since('$$this')] }
  const need = { $cond: [isCount('$$this.each'), '$$this.each', 1] }
  const goesBefore = {
    $and: [
      { $gt: [waitedMs, TURN_MS] },
      // It has asked again: a replica that asks less often than others forget it would never come for the slots kept for it.
      { $lt: [since('$$this'), '$$this.at'] },
      { $lt: [since('$$this'), since('$$waited')] },
      { $lte: [need, TOTAL] },
    ],
  }
  const older = { $filter: { input: '$$waiting', cond: goesBefore } }
  const reserved = { $sum: { $map: { input: older, in: need } } }
  const free = {
    $cond: [isValid, { $max: [0, { $subtract: [TOTAL, { $add: [taken, inUse, reserved] }] }] }, 0],
  }
  const waiters = { $add: [1, { $size: '$$waiting' }] }
  // Alone it may have all; beside others that wait no more than an equal share, beyond what it has in use.
  const share = { $max: [each, { $ceil: { $divide: [TOTAL, waiters] } }] }
  const most = { $max: [0, { $min: [slots, free, { $subtract: [share, inUse] }] }] }
  // A multiple of `each`: single ones would be of use to no replica where a document needs two.
  const granted = { $add: [inUse, { $subtract: [most, { $mod: [most, each] }] }] }
  const startable = { $min: [starts, BURST, { $floor: '$$left' }] }
  const started = { $cond: [{ $and: [isRate, isValid] }, { $max: [0, startable] }, 0] }
  const entry = {
    by: literal(by),
    slots: '$$granted',
    starts: '$$started',
    turn,
    ms: leaseMs,
    until: { $add: ['$$NOW', leaseMs] },
  }
  const entries = { $cond: [{ $gt: [{ $add: ['$$granted', '$$started'] }, 0] }, [entry], []] }
  const left = { $subtract: ['$$left', { $cond: [{ $gt: [starts, 0] }, '$$started', starts] }] }
  const bucket = { left: { $min: [FULL, left] }, at: refilledAt(isValid) }
  const isShort = { $lte: [{ $add: ['$$granted', each] }, { $min: [inUse + slots, share] }] }
  const waitsSince = { $cond: [{ $gt: ['$$granted', inUse] }, '$$NOW', since('$$waited')] }
  const waits = { $cond: [isShort, [{ by: literal(by), at: '$$NOW', since: waitsSince, each }], []] }
  const change = {
    holders: { $concatArrays: ['$$others', entries] },
    waiting: { $concatArrays: ['$$waiting', waits] },
    bucket: { $cond: [isRate, bucket, '$$REMOVE'] },
    askedAt: '$$NOW',
  }
  const isLate = { $gte: [{ $ifNull: ['$$own.turn', -1] }, turn] }
  const changed = {
    $let: {
      vars: { others, own, waited, waiting: { $filter: { input: WAITING, cond: isAnother } }, left: leftIn(isValid) },
      in: {
        $let: {
          vars: { granted },
          in: {
            $let: {
              vars: { started },
              in: { $mergeObjects: ['$$ROOT', { $cond: [isLate, { askedAt: '$$NOW' }, change] }] },
            },
          },
        },
      },
    },
  }
  const stated = key ? [declaredBy(key)] : declared === undefined ? [] : [declaredAgain(declared, leaseMs)]
  return [...stated, { $replaceWith: changed }]
}

/** States what lifecycles declare where the document doesn't. */
const declaredAgain = (slots: number, leaseMs: number): Document => ({
  $set: {
    declared: countOr('$declared', slots),
    removed: '$$REMOVE',
    holders: holdersBefore(slots, leaseMs),
  },
})

const DUPLICATE_KEY = 11000

/** Matches limits of keys without any setting by a person. */
const isAsDeclared: Document = { key: true, slots: { $exists: false }, $expr: { $not: [isPaused] } }
const notOf = (by: string): Document => ({ $not: { $elemMatch: { by: { $ne: by } } } })

/**
 * Removes limits of keys that this replica alone has used, and no replica waits for. True if those were all of them.
 * @param turn as that of a request: the grants of a later one stay, should this arrive late
 */
export async function forgetKeys(db: Db, names: readonly string[], by: string, turn: number): Promise<boolean> {
  const isUnrated = { rate: { $exists: false } }
  const isAsked = { askedAt: { $exists: true } } // else it has just been made
  const holders = { $not: { $elemMatch: { $or: [{ by: { $ne: by } }, { turn: { $gt: turn } }] } } }
  const isUnused = { ...isAsDeclared, ...isUnrated, ...isAsked, holders, waiting: notOf(by) }
  return (await limitsOf(db).deleteMany({ _id: { $in: [...names] }, ...isUnused })).deletedCount === names.length
}

const isHeld: Document = { $gt: [{ $size: { $filter: { input: HOLDERS, cond: isLeased } } }, 0] }

/**
 * Removes a limit: documents that need it wait from then on; where their lifecycle declares it, the declared values apply. While
 * slots are in use its document stays, with no slots to be had, so that no slot is granted twice should the limit be made again;
 * `forgetOldKeys` removes it.
 * @returns true if there was one
 */
export async function removeLimit(db: Db, name: string): Promise<boolean> {
  const limits = limitsOf(db)
  const isThere = { _id: name, removed: { $ne: true } }
  // One that lifecycles declare is there again with their next request: without its document no one would know the slots in use.
  const isUndeclared = { $or: [{ key: true }, { declared: { $not: { $type: 'number' } } }] }
  const unused = await limits.deleteOne({ ...isThere, ...isUndeclared, $expr: { $not: [isHeld] } })
  if (unused.deletedCount > 0) return true
  const isKey = { $eq: ['$key', true] }
  const declaredRate = { $ifNull: ['$declaredRate', '$$REMOVE'] }
  const left = {
    ...{ slots: '$$REMOVE', paused: '$$REMOVE', pauses: '$$REMOVE' },
    declared: { $cond: [isKey, { $ifNull: ['$declared', '$$REMOVE'] }, '$$REMOVE'] },
    rate: { $cond: [isKey, declaredRate, '$$REMOVE'] },
    removed: { $cond: [isKey, '$$REMOVE', true] },
  }
  return (await limits.updateOne(isThere, [{ $set: left }])).matchedCount > 0
}

/** Matches what `removeLimit` has left, unless it has been set since by hand, or declared by a replica of an older version. */
const isLeftOver: Document = {
  removed: true,
  ...{ slots: { $exists: false }, declared: { $exists: false }, rate: { $exists: false }, paused: { $exists: false } },
}

const KEPT_MS = 3_600_000
/** The limit for values that a person has put there. */
const LONGEST_KEPT_MS = 36_500 * 24 * KEPT_MS

/**
 * Removes limits of keys without a request in an hour, nor in the span of their rate: before that not all of it may be there again.
 * Their replicas were killed, or they have a rate. And limits that were removed while they were in use.
 * @param validUntil later nothing is removed: the server's clock may have stepped forward. Default: always
 * @returns the number removed
 */
export async function forgetOldKeys(db: Db, validUntil?: Date): Promise<number> {
  const spanMs = { $cond: [isRate, { $min: ['$rate.perMs', LONGEST_KEPT_MS] }, 0] }
  const isOld = { $lt: ['$askedAt', { $subtract: ['$$NOW', { $max: [KEPT_MS, spanMs] }] }] }
  const { $expr, ...asDeclared } = isAsDeclared
  const isSet = { $not: [{ $or: [{ $eq: [{ $type: '$rate' }, 'missing'] }, { $eq: ['$rate', '$declaredRate'] }] }] }
  const isNow = validUntil ? { $lte: ['$$NOW', validUntil] } : true
  const old = await limitsOf(db).deleteMany({
    $or: [
      { ...asDeclared, $expr: { $and: [isOld, $expr, { $not: [isHeld] }, { $not: [isSet] }, isNow] } },
      { ...isLeftOver, $expr: { $and: [{ $not: [isHeld] }, isNow] } },
    ],
  })
  return old.deletedCount
}

/** The most that may begin together. 0 where a person has put anything else in the rate's place, and of a rate of none. */
const BURST: Document = {
  $cond: [isRate, { $min: ['$rate.starts', { $max: [1, { $floor: { $divide: ['$rate.starts', 10] } }] }] }, 0],
}
/** Part of one more is kept, the amount added in this time: a requester that is late by it loses nothing of its rate. */
const LATE_MS = 1_500
const LATE: Document = { $divide: [{ $multiply: ['$rate.starts', LATE_MS] }, '$rate.perMs'] }
const FULL: Document = { $cond: [{ $gt: [BURST, 0] }, { $add: [BURST, { $min: [0.999, LATE] }] }, 0] }
const isBucket: Document = {
  $and: [isRate, isCount('$bucket.left'), { $eq: [{ $type: '$bucket.at' }, 'date'] }],
}
/** The number that may begin now: what was left, and what has been added since, evenly; full if there was no request before. */
function leftIn(isValid: Document | boolean): Document {
  const sinceMs = { $cond: [isValid, { $max: [0, { $subtract: ['$$NOW', '$bucket.at'] }] }, 0] }
  const added = { $multiply: [{ $divide: ['$rate.starts', '$rate.perMs'] }, sinceMs] }
  return { $cond: [isBucket, { $min: [FULL, { $add: ['$bucket.left', added] }] }, BURST] }
}

/** Reads the number of documents that may begin now, of limits with a rate, by name; as the next request will find it. */
export async function readStartsLeft(db: Db, names: readonly string[]): Promise<ReadonlyMap<string, number>> {
  const pipeline = [{ $match: { _id: { $in: [...names] } } }, { $project: { left: leftIn(true), isRate } }]
  const rows = await limitsOf(db).aggregate<{ _id: string; left: number; isRate: boolean }>(pipeline).toArray()
  return new Map(rows.flatMap((row) => (row.isRate ? [[row._id, row.left]] : [])))
}

/** A request is valid for this long, so a step of the server's clock up to it may go unseen. */
const UNSEEN_STEP_MS = 5_000
/**
 * The time up to which the bucket has been refilled. An unconfirmed forward step adds nothing, and a small one that was undone adds
 * nothing twice; after a larger step back it is refilled from now on.
 */
function refilledAt(isValid: Document | boolean): Document {
  const isAhead = {
    $and: [{ $gt: ['$bucket.at', '$$NOW'] }, { $lte: ['$bucket.at', { $add: ['$$NOW', UNSEEN_STEP_MS] }] }],
  }
  return { $cond: [{ $and: [isBucket, { $or: [isAhead, { $not: [isValid] }] }] }, '$bucket.at', '$$NOW'] }
}
