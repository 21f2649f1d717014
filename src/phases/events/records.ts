import type { Collection, Document, Filter, IndexSpecification } from 'mongodb'
import { isServerError } from '../../database/index.js'
import { canBeId, NO_ID, readOwnFields } from '../../lock/index.js'
import { t } from '../../options/index.js'

/** The records to list, in the terms that events and audit entries have in common. */
export interface RecordQuery {
  /** Only about documents of this lifecycle. */
  readonly lifecycle?: string | undefined
  /** Only about documents with one of these `_id`s. */
  readonly documents?: readonly unknown[] | undefined
  /** Only from this time on. */
  readonly since?: Date | undefined
  /** Only before this time. */
  readonly until?: Date | undefined
  /** The number of records at most, 1 to 10,000: the newest. Default 50. */
  readonly limit?: number | undefined
}

/** The options that each query takes; any other is the name of a field that must have just that value. */
export const RECORD_QUERY = {
  lifecycle: t.optional(t.name),
  documents: t.optional(
    t.where<readonly unknown[]>(
      (value) => Array.isArray(value) && value.every(canBeId),
      t.expecting(`a list of _id's (each ${NO_ID})`),
    ),
  ),
  since: t.optional(t.aDate),
  until: t.optional(t.aDate),
  limit: t.withDefault(t.whole(1, 10_000), 50),
}

/** The query as a filter on records. */
function recordFilter({ documents, since, until, limit, ...exactly }: RecordQuery): Filter<Document> {
  const equal = Object.entries(exactly).filter(([, value]) => value !== undefined)
  return {
    ...Object.fromEntries(equal.map(([field, value]) => [field, { $eq: value }])),
    ...(documents && { document: { $in: [...documents] } }),
    ...((since || until) && { at: { ...(since && { $gte: since }), ...(until && { $lt: until }) } }),
  }
}

/** Reads the records that a query means, the newest first. @param also further conditions */
export const newestRecords = (
  records: Collection,
  query: RecordQuery & { readonly limit: number },
  also: Filter<Document> = {},
): Promise<Document[]> =>
  readOwnFields((how) =>
    records
      .find({ ...recordFilter(query), ...also }, { projection: { _id: 0, expiresAt: 0 }, ...how })
      .sort({ at: -1 })
      .limit(query.limit)
      .toArray(),
  )

/**
 * Removes the oldest records beyond `most`, of those that an equality on an index means: by default of all.
 * @returns the number of removed records
 */
export async function removeOldest(
  records: Collection,
  most: number,
  which: { readonly filter?: Document; readonly hint?: IndexSpecification; readonly maxTimeMS?: number } = {},
): Promise<number> {
  const { filter = {}, ...how } = which
  const { maxTimeMS } = which
  if ((await records.estimatedDocumentCount({ ...(maxTimeMS && { maxTimeMS }) })) <= most) return 0
  const [last] = await records
    .find(filter, { projection: { _id: 0, at: 1 }, ...how })
    .sort({ at: -1 })
    .skip(most)
    .limit(1)
    .toArray()
  if (!last) return 0
  return (await records.deleteMany({ ...filter, at: { $lte: last['at'] } }, how)).deletedCount
}

const UNAUTHORIZED = 13

/** Prepares a collection of records, as far as this user may: another user does it, or has (docs/mongodb-role.md). A record needs none of it. */
export async function unlessUnauthorized(prepare: () => Promise<unknown>): Promise<void> {
  try {
    await prepare()
  } catch (error) {
    if (!isServerError(error, UNAUTHORIZED)) throw error
  }
}
