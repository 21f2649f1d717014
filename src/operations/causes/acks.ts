import type { Collection, Db, Document } from 'mongodb'
import { isServerError, protocolCollection } from '../../database/index.js'
import { literal } from '../../lock/index.js'
import type { Count } from '../inspect/count-text.js'

/** Holds a document for each cause that somebody deals with; its `_id` is the cause's id. */
export const ACKS_COLLECTION = 'phaselock.acks'

/** An acknowledgement as it is stored. Times are the server's. */
export interface Ack {
  /** The id of the cause. */
  readonly cause: string
  readonly by: string
  readonly note: string | null
  readonly since: Date
  readonly until: Date
  /** The number of documents when it was acknowledged; null: not known. */
  readonly documents: number | null
  /** True if there were more than could be counted. */
  readonly more: boolean
}

/** The most acknowledgements in force. */
export const MOST_ACKS = 1_000
const MOST_MS = 5_000
const UNAUTHORIZED = 13

const acksOf = (db: Db): Collection<Document & { _id: string }> => protocolCollection(db, ACKS_COLLECTION)
const inForce: Document = { $gt: ['$until', '$$NOW'] }

/** Those in force, by cause, with the server's time; none for a role of an earlier version, which may not read them. */
export async function readAcks(db: Db): Promise<ReadonlyMap<string, Ack>> {
  const rows = await acksOf(db)
    .aggregate([{ $match: { $expr: inForce } }, { $limit: MOST_ACKS }], { maxTimeMS: MOST_MS })
    .toArray()
    .catch((error: unknown) => (isServerError(error, UNAUTHORIZED) ? [] : Promise.reject(error)))
  return new Map(rows.flatMap((row) => ackOf(row) ?? []).map((ack) => [ack.cause, ack]))
}

/** Reads a stored one; undefined if a person has changed it so that it says nothing. */
function ackOf({ _id: cause, by, note, since, until, documents, more }: Document): Ack | undefined {
  if (typeof cause !== 'string' || typeof by !== 'string' || !(until instanceof Date)) return undefined
  return {
    ...{ cause, by, until, note: typeof note === 'string' ? note : null },
    since: since instanceof Date ? since : new Date(0),
    documents: typeof documents === 'number' ? documents : null,
    more: more === true,
  }
}

/** True if there are twice as many documents as when it was acknowledged, or now more than can be counted. */
export const hasDoubled = ({ documents: then, more }: Pick<Ack, 'documents' | 'more'>, now: Count | null): boolean =>
  then !== null && now !== null && (now.n >= 2 * Math.max(then, 1) || (now.more === true && !more))

/** What became of an acknowledgement: stored, left alone because another person has the cause, or refused because there are too many. */
export type AckVerdict = { readonly kind: 'acknowledged' | 'another'; readonly ack: Ack } | { readonly kind: 'tooMany' }

export interface NewAck {
  readonly by: string
  readonly note: string | null
  /** A time of the server's, or milliseconds from now on. */
  readonly end: Date | number
  /** The number of documents now; null: not known. */
  readonly documents: Count | null
  /** An earlier acknowledgement than this time's is not of the same fault, so it may be replaced; null: any is. */
  readonly begun: Date | null
}

/**
 * Stores an acknowledgement; one's own is replaced.
 *
 * Invariant: of several people who acknowledge a cause one has it, and the others learn who. So the update leaves another's as it is while that is in
 * force, unless the documents have doubled or the fault began anew since.
 */
export async function storeAck(
  db: Db,
  cause: string,
  { by, note, end, documents, begun }: NewAck,
): Promise<AckVerdict> {
  const acks = acksOf(db)
  await removeOver(db)
  const others = { _id: { $ne: cause } }
  if ((await acks.countDocuments(others, { limit: MOST_ACKS, maxTimeMS: MOST_MS })) >= MOST_ACKS)
    return { kind: 'tooMany' }
  const until = typeof end === 'number' ? { $add: ['$$NOW', end] } : literal(end)
  const own = { by: literal(by), note: literal(note), since: '$$NOW', until, expiresAt: until }
  const { n, more = false } = documents ?? { n: null }
  const isTwice = { $lte: [{ $multiply: [{ $max: ['$documents', 1] }, 2] }, literal(n ?? 0)] }
  const isEndless = { $and: [literal(more), { $ne: ['$more', true] }] }
  const doubled = { $and: [{ $isNumber: '$documents' }, { $or: [isTwice, isEndless] }] }
  const isOfFault = begun === null ? true : { $gte: ['$since', literal(begun)] }
  const isAnothers = { $and: [inForce, { $ne: ['$by', literal(by)] }, { $not: [doubled] }, isOfFault] }
  const stored = { _id: literal(cause), ...own, documents: literal(n), more: literal(more) }
  const after = await acks.findOneAndUpdate(
    { _id: cause },
    [{ $replaceWith: { $cond: [isAnothers, '$$ROOT', stored] } }],
    { upsert: true, returnDocument: 'after', maxTimeMS: MOST_MS },
  )
  const ack = after && ackOf(after)
  if (!ack)
    throw new Error(`expected an acknowledgement of ${cause} in ${ACKS_COLLECTION}, got ${JSON.stringify(after)}`)
  return { kind: ack.by === by ? 'acknowledged' : 'another', ack }
}

/** Ends an acknowledgement, whoever made it. Undefined: there was none in force. */
export async function removeAck(db: Db, cause: string): Promise<Ack | undefined> {
  const found = await acksOf(db).findOneAndDelete({ _id: cause, $expr: inForce }, { maxTimeMS: MOST_MS })
  return found ? ackOf(found) : undefined
}

const prepared = new WeakSet<Db>()

/** The server removes those that are over by an index. Those that it leaves are removed here, so that their number is bounded anyway. */
async function removeOver(db: Db): Promise<void> {
  const acks = acksOf(db)
  const isNotAllowed = (error: unknown) => (isServerError(error, UNAUTHORIZED) ? undefined : Promise.reject(error))
  if (!prepared.has(db)) {
    await acks.createIndex({ expiresAt: 1 }, { expireAfterSeconds: 0, maxTimeMS: MOST_MS }).catch(isNotAllowed)
    prepared.add(db)
  }
  await acks.deleteMany({ $expr: { $not: [inForce] } }, { maxTimeMS: MOST_MS }).catch(isNotAllowed)
}
