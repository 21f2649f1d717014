import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { literal } from './terms.js'

/** Holds a document for each duty: what one replica does now and then for all of them. */
export const DUTIES_COLLECTION = 'phaselock.duties'

/** What one replica does for all within an interval, as of the last time. Times are the server's. */
export interface Duty {
  /** Its name. */
  readonly name: string
  /** How often it is done, in milliseconds. */
  readonly everyMs: number
  /** The replica that did it last, or does it now. */
  readonly by: string
  /** When that began. */
  readonly begunAt: Date
  /** How long it took, in milliseconds; null: it runs, or its replica has ended. */
  readonly tookMs: number | null
  /** Why it failed; null: it didn't. */
  readonly error: string | null
  /** What it has found; null: it has never ended. */
  readonly found: Document | null
  /** When that was found; null: never. */
  readonly foundAt: Date | null
}

/** A duty that fails or hangs must not keep a connection. */
const MOST_MS = 5_000

const dutiesOf = (db: Db): Collection<Document & { _id: string }> => protocolCollection(db, DUTIES_COLLECTION)

/**
 * Takes a duty, if nobody has within its interval, by the server's clock. Whoever takes it has to end it. After that clock
 * was set back by more than the interval it is anybody's at once.
 * @returns whether it is this replica's to do now
 */
export async function takeDuty(db: Db, name: string, by: string, everyMs: number): Promise<boolean> {
  const next = { $add: ['$begunAt', everyMs] }
  // Another's command may have begun a moment later and be executed first: that is no step of the clock.
  const isAhead = { $gt: ['$begunAt', { $add: ['$$NOW', everyMs] }] }
  const isLate = { $or: [{ $lte: [next, '$$NOW'] }, isAhead] }
  const isDue = { $cond: [{ $eq: [{ $type: '$begunAt' }, 'date'] }, isLate, true] }
  const taken = { begunAt: '$$NOW', by: literal(by), everyMs, tookMs: literal(null), error: literal(null) }
  const change = { $cond: [isDue, { $mergeObjects: ['$$ROOT', taken] }, '$$ROOT'] }
  const before = await dutiesOf(db).findOneAndUpdate({ _id: name }, [{ $replaceWith: change }], {
    projection: { isDue },
    upsert: true,
    returnDocument: 'before',
    maxTimeMS: MOST_MS,
  })
  return before === null || before['isDue'] === true
}

/** Stores what came of it; nothing, if another replica has taken it meanwhile. */
export async function endDuty(
  db: Db,
  name: string,
  by: string,
  came: { readonly tookMs: number; readonly found: Document } | { readonly tookMs: number; readonly error: string },
): Promise<void> {
  const fields = Object.entries(came).map(([field, value]) => [field, literal(value)])
  const set = { ...Object.fromEntries(fields), ...('found' in came && { foundAt: '$$NOW' }) }
  await dutiesOf(db).updateOne({ _id: name, by, tookMs: null }, [{ $set: set }], { maxTimeMS: MOST_MS })
}

/** Removes duties whose names begin so and that nobody has begun for a while. */
export async function forgetDuties(db: Db, prefix: string, afterMs: number): Promise<void> {
  const isOld = { $lt: ['$begunAt', { $subtract: ['$$NOW', afterMs] }] }
  const named = { $gte: prefix, $lt: `${prefix}\uffff` }
  await dutiesOf(db).deleteMany({ _id: named, $expr: isOld }, { maxTimeMS: MOST_MS })
}

/** The most that are read: a replica with more lifecycles than that has other troubles. */
const MOST_DUTIES = 2_000

/** All duties by name, and the server's time; undefined where none was ever done. */
export async function readDuties(
  db: Db,
): Promise<{ readonly duties: readonly Duty[]; readonly now: Date | undefined }> {
  const pipeline = [{ $sort: { _id: 1 } }, { $limit: MOST_DUTIES }, { $project: { document: '$$ROOT', now: '$$NOW' } }]
  const rows = await dutiesOf(db).aggregate(pipeline, { maxTimeMS: MOST_MS }).toArray()
  return { duties: rows.flatMap(({ document }) => dutyOf(document) ?? []), now: rows[0]?.['now'] }
}

/** A person may have put anything there. */
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
