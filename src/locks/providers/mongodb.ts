import { BSON, type Collection, type Db, type Document, type Filter } from 'mongodb'
import { isDuplicateKey, protocolCollection } from '../../database/index.js'
import { COMMITTED, claimFence, isDate, isValid, literal, readOwnFields, STEP_SLACK_MS } from '../../lock/index.js'
import { freedToken, isReleased, RELEASED_TOKEN, releasedToken } from '../acquisition.js'
import type { LockRecord } from '../lock-provider.js'
import type { Granted, LockStore, Request } from '../lock-store.js'
import { SeenRecords } from './seen-records.js'

/** ShedLock's own document plus the fence; `_id` is the lock's name. */
interface ShedLockDocument extends Document {
  _id: string
  lockUntil: Date
  lockedAt: Date
  lockedBy: string
  fence?: number
}

export const SHEDLOCK_COLLECTION = 'shedLock'

const LIST_LIMIT = 10_000

const isText = { $eq: [{ $type: '$lockedBy' }, 'string'] }
/** Released, although taken at a time in the future: the server's clock has stepped back since, so its lockUntil means nothing. */
const isReleasedAhead = {
  $and: [
    { $gt: ['$lockedAt', { $add: ['$$NOW', STEP_SLACK_MS] }] },
    { $cond: [isText, { $regexMatch: { input: '$lockedBy', regex: RELEASED_TOKEN.source } }, false] },
  ],
}
/** Exact opposites. A lock is also free if its lockUntil isn't a date: it would be held forever where its type sorts after dates. */
const isFree = { $or: [{ $not: [isDate('$lockUntil')] }, { $lte: ['$lockUntil', '$$NOW'] }, isReleasedAhead] }
const isHeld = { $not: [isFree] }

/** When it was taken, and now at the latest: a clock that stepped back puts lockedAt in the future. */
const takenAt = { $cond: [isDate('$lockedAt'), { $min: ['$lockedAt', '$$NOW'] }, '$$NOW'] }
const later = (ms: number): Document => ({ $add: ['$$NOW', ms] })

/**
 * Locks in MongoDB, shared with Java's ShedLock:
 * 1. a name seen for the first time: one upsert that takes a missing or free lock and leaves a held one unchanged;
 * 2. later: one update of the record if it is free; while another caller holds it, this matches nothing and writes nothing;
 * 3. unlock and extend: one update if `lockedBy` is ours and `lockUntil` is in the future;
 * 4. always by the server's `$$NOW`, acknowledged by a majority and journaled.
 */
export class MongoLockStore implements LockStore {
  readonly kind = 'mongodb'
  private readonly locks: Collection<ShedLockDocument>
  private readonly seen = new SeenRecords()

  constructor(
    db: Db,
    collection: string = SHEDLOCK_COLLECTION,
    private readonly onClose: () => Promise<void> = async () => {},
  ) {
    this.locks = protocolCollection<ShedLockDocument>(db, collection)
  }

  take(request: Request): Promise<Granted | undefined> {
    return this.seen.take(request.name, {
      update: async () => {
        const filter = { _id: request.name, $expr: { $or: [isFree, isReentry(request)] } }
        const taken = await this.locks.findOneAndUpdate(filter, [{ $set: ownership(request) }], RETURNED)
        return taken ? grantedIn(taken) : undefined
      },
      exists: async () => (await this.locks.findOne({ _id: request.name }, { projection: { _id: 1 } })) !== null,
      insert: () => this.insertOrTake(request),
    })
  }

  /** One command, which doesn't fail if the lock is held: the record is then returned unchanged, with the other holder's token. */
  private async insertOrTake(request: Request): Promise<Granted | undefined> {
    const taken = { $mergeObjects: ['$$ROOT', ownership(request)] }
    try {
      const stored = await this.locks.findOneAndUpdate(
        { _id: request.name },
        [{ $replaceWith: { $cond: [{ $or: [isFree, isReentry(request)] }, taken, '$$ROOT'] } }],
        { ...RETURNED, upsert: true },
      )
      return stored?.['lockedBy'] === request.token ? grantedIn(stored) : undefined
    } catch (error) {
      // Another process inserted it at the same time, and was first.
      if (isDuplicateKey(error)) return undefined
      throw error
    }
  }

  async free(name: string, token: string, atLeastMs: number): Promise<boolean> {
    const lockUntil = { $max: ['$$NOW', { $add: [takenAt, atLeastMs] }] }
    const { matchedCount } = await this.locks.updateOne(heldBy(name, token), [
      { $set: { lockUntil, lockedBy: literal(releasedToken(token)) } },
    ])
    return matchedCount === 1
  }

  async extend(name: string, token: string, atMostMs: number, atLeastMs: number): Promise<Date | undefined> {
    const atLeastUntil = { $add: [takenAt, atLeastMs] }
    const extended = await this.locks.findOneAndUpdate(
      heldBy(name, token),
      [{ $set: { lockUntil: { $max: [later(atMostMs), atLeastUntil] } } }],
      RETURNED,
    )
    return extended?.lockUntil
  }

  async find(name: string): Promise<LockRecord | undefined> {
    const [found] = await this.records({ _id: name })
    return found
  }

  /** Read with majority concern, as each granted lock was written: a write that may be rolled back ends no task. */
  async holders(names: readonly string[]): Promise<Map<string, string>> {
    const filter = {
      _id: { $in: [...names] },
      lockedBy: { $type: 'string' },
      $expr: isHeld,
    } as Filter<ShedLockDocument>
    const found = await this.locks.find(filter, { projection: { lockedBy: 1 }, ...COMMITTED }).toArray()
    return new Map(found.map(({ _id, lockedBy }) => [_id, lockedBy]))
  }

  list(heldOnly: boolean): Promise<LockRecord[]> {
    return this.records(heldOnly ? { $expr: isHeld } : {})
  }

  async release({ name, lockedBy }: LockRecord): Promise<boolean> {
    const { matchedCount } = await this.locks.updateOne(heldBy(name, lockedBy ?? null), [
      { $set: { lockUntil: '$$NOW', lockedBy: literal(freedToken(lockedBy ?? 'nobody')) } },
    ])
    return matchedCount === 1
  }

  close(): Promise<void> {
    return this.onClose()
  }

  private async records(filter: Document): Promise<LockRecord[]> {
    const fields = { lockedBy: 1, lockedAt: 1, lockUntil: 1, fence: 1, held: isHeld }
    const pipeline = [{ $match: filter }, { $sort: { _id: 1 } }, { $limit: LIST_LIMIT }, { $project: fields }]
    const stored = await readOwnFields((how) => this.locks.aggregate(pipeline, how).toArray())
    return stored.map(recordIn)
  }
}

const RETURNED = { returnDocument: 'after' } as const

const ownership = ({ token, lockAtMostForMs }: Request): Document => ({
  lockUntil: later(lockAtMostForMs),
  lockedAt: '$$NOW',
  lockedBy: literal(token),
  fence: claimFence,
})

/** The condition that `lockedBy` is a string ending with the reentry. */
function isReentry({ reentrySuffix }: Request): Document {
  if (reentrySuffix === undefined) return literal(false)
  const at = { $indexOfCP: ['$lockedBy', '|'] }
  const end = { $substrCP: ['$lockedBy', at, { $strLenCP: '$lockedBy' }] }
  return {
    $cond: [
      { $eq: [{ $type: '$lockedBy' }, 'string'] },
      { $cond: [{ $gte: [at, 0] }, { $eq: [end, literal(reentrySuffix)] }, false] },
      false,
    ],
  }
}

/** @param token null: a record whose `lockedBy` is missing or not a string */
const heldBy = (name: string, token: string | null) =>
  ({ _id: name, lockedBy: token ?? { $not: { $type: 'string' } }, $expr: isHeld }) as Filter<ShedLockDocument>

const grantedIn = ({ lockedAt, lockUntil, fence }: ShedLockDocument): Granted => ({
  lockedAt,
  lockUntil,
  fence: fence!,
})

/** A record may contain anything: a field that can't be used counts as missing. */
function recordIn(stored: Document): LockRecord {
  const { _id, lockedBy, lockedAt, lockUntil, fence, held } = stored
  const token = typeof lockedBy === 'string' ? lockedBy : undefined
  return {
    name: typeof _id === 'string' ? _id : BSON.EJSON.stringify(_id),
    lockedBy: token,
    lockedAt: dateIn(lockedAt),
    lockUntil: dateIn(lockUntil),
    fence: typeof fence === 'number' ? fence : undefined,
    held: held === true,
    released: isReleased(token),
  }
}

const dateIn = (value: unknown): Date | undefined => (value instanceof Date && isValid(value) ? value : undefined)
