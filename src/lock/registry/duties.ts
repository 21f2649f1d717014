import type { Collection, Db, Document } from 'mongodb'
import { isServerError, protocolCollection } from '../../database/index.js'
import { DUTIES_COLLECTION, literal } from '../terms/terms.js'

/** A duty that one replica does for all within an interval, as of the last time. Times are the server's. */
export interface Duty {
  /** Its name. */
  readonly name: string
  /** The interval in milliseconds. */
  readonly everyMs: number
  /** The replica that did it last, or does it now. */
  readonly by: string
  /** The time when that began. */
  readonly begunAt: Date
  /** The time that it took, in milliseconds; null: it runs, or its replica has ended. */
  readonly tookMs: number | null
  /** The error that it failed with the last time that it ended; null: it didn't fail. */
  readonly error: string | null
  /** Its findings; null: it has never ended. */
  readonly found: Document | null
  /** The time of these findings; null: never. */
  readonly foundAt: Date | null
}

/** A duty that fails or hangs must not keep a connection. */
const MOST_MS = 5_000
const DUPLICATE_KEY = 11_000

const dutiesOf = (db: Db): Collection<Document & { _id: string }> => protocolCollection(db, DUTIES_COLLECTION)

/** The duties that a replica takes with one request. */
export interface Shift {
  /** The replica: of this start, not only by name. */
  readonly by: string
  /** Grows with each time that the replica asks. */
  readonly shift: number
}

/** A duty that may be due. */
export interface DutyToTake {
  readonly name: string
  /** The interval in milliseconds, or an expression over the duty's document. */
  readonly everyMs: number | Document
  /** The time that it may take, in milliseconds: while it runs no other replica takes it earlier, however short its interval is. Default: 0 */
  readonly mostMs?: number
}

/** A duty as it stands, taken or not. */
export interface SeenDuty {
  readonly name: string
  /** What it said that doing it costs, in milliseconds; undefined: nothing. */
  readonly costMs: number | undefined
}

/**
 * Takes those duties that no replica has taken within their intervals, by the server's clock, with two commands for any number of them. The
 * replica that takes them has to end them. After that clock was set back by more than an interval any replica may take them immediately.
 * @param seen gets each of them as it stands
 * @returns the names of those that are this replica's to do now
 */
export async function takeDuties(
  db: Db,
  duties: readonly DutyToTake[],
  { by, shift }: Shift,
  seen: (duty: SeenDuty) => void = () => undefined,
): Promise<string[]> {
  const collection = dutiesOf(db)
  const names = duties.map(({ name }) => name)
  const ofEach = (values: readonly unknown[]) => ({
    $arrayElemAt: [values, { $indexOfArray: [literal(names), '$_id'] }],
  })
  const everyMs = ofEach(duties.map((one) => one.everyMs))
  const mostMs = ofEach(duties.map((one) => one.mostMs ?? 0))
  const turnMs = { $cond: [{ $isNumber: '$tookMs' }, everyMs, { $max: [everyMs, mostMs] }] }
  // Another's command may have begun a moment later and be executed first: that is no step of the clock.
  const isAhead = { $gt: ['$begunAt', { $add: ['$$NOW', turnMs] }] }
  const isLate = { $or: [{ $lte: [{ $add: ['$begunAt', turnMs] }, '$$NOW'] }, isAhead] }
  const isDue = { $cond: [{ $eq: [{ $type: '$begunAt' }, 'date'] }, isLate, true] }
  const before = {
    previous: { begunAt: { $ifNull: ['$begunAt', null] }, tookMs: { $ifNull: ['$tookMs', null] } },
  }
  const taken = [{ $set: { begunAt: '$$NOW', ...before, ...fieldsOf({ by, shift, tookMs: null }), everyMs } }]
  await collection.updateMany({ _id: { $in: names }, $expr: isDue }, taken, { maxTimeMS: MOST_MS })
  const found = await collection
    .find({ _id: { $in: names } }, { projection: { by: 1, shift: 1, 'found.costMs': 1 }, maxTimeMS: MOST_MS })
    .toArray()
  for (const { _id: name, found: outcome } of found)
    seen({ name, costMs: typeof outcome?.costMs === 'number' ? outcome.costMs : undefined })
  const mine = found.filter((one) => one['by'] === by && one['shift'] === shift).map(({ _id }) => _id)
  const known = new Set(found.map(({ _id }) => _id))
  const unknown = names.filter((name) => !known.has(name))
  if (unknown.length === 0) return mine
  // No replica ever had these: once they are there any replica may take them. This replica keeps those that it has taken already.
  const added = unknown.map((_id) => ({ _id }))
  await collection
    .insertMany(added, { ordered: false, maxTimeMS: MOST_MS })
    .catch((error) => (isServerError(error, DUPLICATE_KEY) ? undefined : Promise.reject(error)))
  return takeDuties(db, duties, { by, shift }, seen)
}

/** The outcome of a duty: its findings, or its error. */
export type DutyEnd = { readonly name: string; readonly tookMs: number } & (
  | { readonly found: Document }
  | { readonly error: string }
)

/**
 * Stores their outcomes, except for those that another replica has taken since.
 * @param left the names of those that weren't begun: they are as due as they were
 */
export async function endDuties(
  db: Db,
  { by, shift }: Shift,
  ended: readonly DutyEnd[],
  left: readonly string[] = [],
): Promise<void> {
  const isMine = { by, shift, tookMs: null }
  const updates = ended.map(({ name, ...came }) => ({
    updateOne: {
      filter: { _id: name, ...isMine },
      update: [{ $set: { ...fieldsOf(came), ...('found' in came && { foundAt: '$$NOW', error: null }) } }],
    },
  }))
  const filter = { _id: { $in: [...left] }, ...isMine }
  const givenBack = {
    updateMany: { filter, update: [{ $set: { begunAt: '$previous.begunAt', tookMs: '$previous.tookMs' } }] },
  }
  const all = left.length > 0 ? [...updates, givenBack] : updates
  if (all.length > 0) await dutiesOf(db).bulkWrite(all, { ordered: false, maxTimeMS: MOST_MS })
}

const fieldsOf = (values: object): Document =>
  Object.fromEntries(Object.entries(values).map(([field, value]) => [field, literal(value)]))

/** Removes duties that no replica has begun for a while, and for three of their intervals: a newer version may have some of a day. */
export async function forgetDuties(db: Db, afterMs: number): Promise<void> {
  const everyMs = { $cond: [{ $isNumber: '$everyMs' }, '$everyMs', 0] }
  const keptMs = { $max: [afterMs, { $multiply: [everyMs, 3] }] }
  const isOld = { $lt: ['$begunAt', { $subtract: ['$$NOW', keptMs] }] }
  await dutiesOf(db).deleteMany({ $expr: isOld }, { maxTimeMS: MOST_MS })
}

/** Removes duties with their findings: those that a replica still has are due immediately. */
export async function removeDuties(db: Db, names: readonly string[]): Promise<void> {
  await dutiesOf(db).deleteMany({ _id: { $in: [...names] } }, { maxTimeMS: MOST_MS })
}

/** The most that are read: a replica with more lifecycles than that has other troubles. */
const MOST_DUTIES = 2_000

/** Reads all duties by name, and the server's time; undefined if no duty was ever done. */
export async function readDuties(
  db: Db,
): Promise<{ readonly duties: readonly Duty[]; readonly now: Date | undefined }> {
  const pipeline = [{ $sort: { _id: 1 } }, { $limit: MOST_DUTIES }, { $project: { document: '$$ROOT', now: '$$NOW' } }]
  const rows = await dutiesOf(db).aggregate(pipeline, { maxTimeMS: MOST_MS }).toArray()
  return { duties: rows.flatMap(({ document }) => dutyOf(document) ?? []), now: rows[0]?.['now'] }
}

/** Reads a stored duty. A person may have put anything there. */
function dutyOf({ _id, everyMs, by, begunAt, tookMs, error, found, foundAt }: Document): Duty | undefined {
  if (typeof _id !== 'string' || !(begunAt instanceof Date) || typeof everyMs !== 'number') return undefined
  return {
    name: _id,
    everyMs,
    by: typeof by === 'string' ? by : '?',
    begunAt,
    tookMs: typeof tookMs === 'number' ? tookMs : null,
    error: typeof error === 'string' ? error : null,
    found: typeof found === 'object' && found !== null && !Array.isArray(found) ? found : null,
    foundAt: foundAt instanceof Date ? foundAt : null,
  }
}
