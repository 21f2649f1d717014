import type { Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { CENSUS_COLLECTION, DUTIES_COLLECTION, literal, type Shift } from '../../lock/index.js'
import type { Census, GoneCause } from './census.js'
import { isWholeGoneCause } from './is-census.js'

const MOST_MS = 5_000
/** An older census no longer counts in what censuses cost. */
const COUNTS_FOR_MS = 3_600_000

/** How long a cause that isn't found any more is remembered. */
const GONE_FOR_MS = 3_600_000
const MOST_GONE = 50

/** What a census keeps from the ones before it. */
export interface Before {
  /** By cause, when it was first seen. */
  readonly firstSeen: ReadonlyMap<string, Date>
  /** The causes that it listed, and those that it remembered. */
  readonly seen: readonly GoneCause[]
  /** The time that the last censuses of the other lifecycles took, together. */
  readonly othersMs: number
}

/** A pipeline over the censuses that reads it: of the lifecycle's own last one the causes, of others what they cost. */
export function beforePipeline(lifecycle: string): Document[] {
  const isOwn = { $eq: ['$_id', literal(lifecycle)] }
  const groups = { $concatArrays: [listAt('$errors'), listAt('$parks')] }
  const listed = { cause: '$$this.cause', firstSeen: '$$this.firstSeen', lastSeen: '$at' }
  const isRecentlyGone = { $gt: ['$$this.lastSeen', { $subtract: ['$$NOW', GONE_FOR_MS] }] }
  const gone = { $filter: { input: listAt('$gone'), cond: isRecentlyGone } }
  const seen = { $concatArrays: [gone, { $map: { input: groups, in: listed } }] }
  const isRecent = { $gt: ['$at', { $subtract: ['$$NOW', COUNTS_FOR_MS] }] }
  return [
    { $match: { $expr: { $or: [isOwn, isRecent] } } },
    { $project: { tookMs: 1, seen: { $cond: [isOwn, seen, '$$REMOVE'] } } },
  ]
}

/** What was read by that. */
export function beforeIn(rows: readonly Document[], lifecycle: string): Before {
  const own: Document[] = rows.find(({ _id }) => _id === lifecycle)?.['seen'] ?? []
  const seen = own.filter((one): one is Document & GoneCause => isWholeGoneCause(one))
  const firstSeen = new Map(seen.map((one) => [one.cause, one.firstSeen]))
  const others = rows.filter(({ _id, tookMs }) => _id !== lifecycle && typeof tookMs === 'number')
  return { firstSeen, seen, othersMs: others.reduce((sum, { tookMs }) => sum + tookMs, 0) }
}

/** The causes to remember: a fault that goes for a while and comes back, such as between two tries, is the same one. */
export function goneCauses(
  { seen }: Before,
  { errors, parks, at }: Pick<Census, 'errors' | 'parks' | 'at'>,
): GoneCause[] {
  const found = new Set([...errors, ...parks].map(({ cause }) => cause))
  const isKept = ({ cause, lastSeen }: GoneCause) =>
    !found.has(cause) && at.getTime() - lastSeen.getTime() < GONE_FOR_MS
  const last = new Map(seen.filter(isKept).map((one) => [one.cause, one]))
  return [...last.values()].sort((a, b) => b.lastSeen.getTime() - a.lastSeen.getTime()).slice(0, MOST_GONE)
}

const listAt = (path: string): Document => ({ $cond: [{ $isArray: path }, path, []] })

/** A census and the duty that it was taken for. */
export interface CensusOfDuty {
  readonly duty: string
  readonly census: Census
}

/** A command holds 16 MB. */
const MOST_AT_ONCE = 100

/**
 * Stores censuses, each if its duty's turn is still this replica's and nothing newer is there: one command that reads the duties and writes the
 * censuses. A census from before a step back of the server's clock gives way.
 */
export async function storeCensuses(db: Db, taken: readonly CensusOfDuty[], { by, shift }: Shift): Promise<void> {
  const isOlder = {
    $or: [{ $lte: ['$at', '$$new.at'] }, { $gt: ['$at', '$$NOW'] }, { $ne: [{ $type: '$at' }, 'date'] }],
  }
  const whenMatched = [{ $replaceWith: { $cond: [isOlder, '$$new', '$$ROOT'] } }]
  for (let from = 0; from < taken.length; from += MOST_AT_ONCE) {
    const some = taken.slice(from, from + MOST_AT_ONCE)
    const names = some.map(({ duty }) => duty)
    const censuses = literal(some.map(({ census }) => census))
    const census = { $arrayElemAt: [censuses, { $indexOfArray: [literal(names), '$_id'] }] }
    await protocolCollection<Document>(db, DUTIES_COLLECTION)
      .aggregate(
        [
          { $match: { _id: { $in: names }, by, shift, tookMs: null } },
          { $replaceWith: census },
          { $merge: { into: CENSUS_COLLECTION, whenMatched } },
        ],
        { maxTimeMS: MOST_MS },
      )
      .toArray()
  }
}
