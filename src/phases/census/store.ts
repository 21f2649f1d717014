import type { Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { CENSUS_COLLECTION, DUTIES_COLLECTION, literal, readOwnFields } from '../../lock/index.js'
import { type Census, censusOf } from './census.js'

const MOST_MS = 5_000
/** An older census no longer counts in what censuses cost. */
const COUNTS_FOR_MS = 3_600_000

/** What a census keeps from the ones before it. */
export interface Before {
  /** By cause, when it was first seen. */
  readonly firstSeen: ReadonlyMap<string, Date>
  /** The time that the last censuses of the other lifecycles took, together. */
  readonly othersMs: number
}

/** Reads it: of the lifecycle's own last census the causes, of others what they cost. */
export async function readBefore(db: Db, lifecycle: string): Promise<Before> {
  const isOwn = { $eq: ['$_id', literal(lifecycle)] }
  const groups = { $concatArrays: [listAt('$errors'), listAt('$parks')] }
  const seen = { $map: { input: groups, in: { cause: '$$this.cause', firstSeen: '$$this.firstSeen' } } }
  const isRecent = { $gt: ['$at', { $subtract: ['$$NOW', COUNTS_FOR_MS] }] }
  const pipeline = [
    { $match: { $expr: { $or: [isOwn, isRecent] } } },
    { $project: { tookMs: 1, seen: { $cond: [isOwn, seen, '$$REMOVE'] } } },
  ]
  const rows = await readOwnFields((how) =>
    censusOf(db)
      .aggregate(pipeline, { maxTimeMS: MOST_MS, ...how })
      .toArray(),
  )
  const own: Document[] = rows.find(({ _id }) => _id === lifecycle)?.['seen'] ?? []
  const known = own.flatMap(({ cause, firstSeen }) =>
    typeof cause === 'string' && firstSeen instanceof Date ? [[cause, firstSeen] as const] : [],
  )
  const others = rows.filter(({ _id, tookMs }) => _id !== lifecycle && typeof tookMs === 'number')
  return { firstSeen: new Map(known), othersMs: others.reduce((sum, { tookMs }) => sum + tookMs, 0) }
}

const listAt = (path: string): Document => ({ $cond: [{ $isArray: path }, path, []] })

/**
 * Stores a census, if the duty's turn is still this replica's and nothing newer is there: one command that reads the duty and writes the census.
 * A census from before a step back of the server's clock gives way.
 * @param turn the duty's name, and the replica's shift in which it was taken
 */
export async function storeCensus(
  db: Db,
  census: Census,
  { duty, by, shift }: { readonly duty: string; readonly by: string; readonly shift: number },
): Promise<void> {
  const isOlder = {
    $or: [{ $lte: ['$at', '$$new.at'] }, { $gt: ['$at', '$$NOW'] }, { $ne: [{ $type: '$at' }, 'date'] }],
  }
  await protocolCollection<Document>(db, DUTIES_COLLECTION)
    .aggregate(
      [
        { $match: { _id: duty, by, shift, tookMs: null } },
        { $replaceWith: literal(census) },
        {
          $merge: {
            into: CENSUS_COLLECTION,
            whenMatched: [{ $replaceWith: { $cond: [isOlder, '$$new', '$$ROOT'] } }],
          },
        },
      ],
      { maxTimeMS: MOST_MS },
    )
    .toArray()
}
