import type { Collection, Db, Document, Filter } from 'mongodb'
import { asReadable } from '../documents/read.js'
import { parseToken } from '../lease/lease.js'
import { LEASE_FIELDS, leaseStateOf } from '../lease/lease-state.js'
import { arrayAt, isDate, literal } from '../terms/terms.js'
import { type CancelRequest, lifecyclesOf, MOST_CANCELS } from './in-force.js'

/** The time that a request is kept: after it each holder has looked, or has lost its lease. */
const KEPT_FOR_MS = 600_000

/** The part of a token that all steps of its claim share; undefined: it has no known form. */
export function claimOf(token: string): string | undefined {
  const parts = parseToken(token)
  return parts && `${parts.replica}#${parts.claim}`
}

/** Finds the token and the claim that a document is held under now; undefined: there is no such document. */
export async function heldUnder(
  collection: Collection,
  id: unknown,
  settings: Parameters<typeof leaseStateOf>[1],
  where: Filter<Document> = {},
): Promise<
  { readonly _id: unknown; readonly token?: string | undefined; readonly claim: string | undefined } | undefined
> {
  const pipeline = [{ $match: { _id: id, $and: [where] } }, { $project: { ...LEASE_FIELDS, now: '$$NOW' } }]
  const [found] = await asReadable((how) => collection.aggregate(pipeline, how).toArray())
  if (!found) return undefined
  const state = leaseStateOf(found, settings, found['now'])
  const token = state.kind === 'held' ? state.by : undefined
  return { _id: found['_id'], token, claim: token === undefined ? undefined : claimOf(token) }
}

const known = arrayAt('$cancels')
const isRecent = {
  $and: [
    isDate('$$this.at'),
    { $gt: ['$$this.at', { $subtract: ['$$NOW', KEPT_FOR_MS] }] },
    { $lt: ['$$this.at', { $add: ['$$NOW', KEPT_FOR_MS] }] },
  ],
}

/**
 * Asks for a stop; the holder finds it with its next look. `tooMany`: {@link MOST_CANCELS} were asked for within ten minutes.
 * @param isFirst only if nobody has asked for it before: else `askedBefore`
 */
export async function addCancel(
  db: Db,
  lifecycle: string,
  { _id, claim, by, reason }: CancelRequest,
  isFirst = false,
): Promise<'asked' | 'notRegistered' | 'tooMany' | 'askedBefore'> {
  const lifecycles = lifecyclesOf(db)
  const isSame = { $and: [{ $eq: ['$$this.claim', literal(claim)] }, { $eq: ['$$this._id', literal(_id)] }] }
  const others = { $filter: { input: known, cond: { $and: [isRecent, { $not: [isSame] }] } } }
  const request = {
    ...{ _id: literal(_id), claim: literal(claim), by: literal(by), reason: literal(reason), at: '$$NOW' },
  }
  const before = { $filter: { input: known, cond: { $and: [isRecent, isSame] } } }
  const isUnasked = { $expr: { $eq: [{ $size: before }, 0] } }
  const { matchedCount } = await lifecycles.updateOne(
    { _id: lifecycle, $expr: { $lt: [{ $size: others }, MOST_CANCELS] }, $and: [isFirst ? isUnasked : {}] },
    [{ $set: { cancels: { $concatArrays: [others, [request]] } } }],
  )
  if (matchedCount > 0) return 'asked'
  const entry = { _id: lifecycle }
  if (isFirst && (await lifecycles.countDocuments({ ...entry, $nor: [isUnasked] })) > 0) return 'askedBefore'
  return (await lifecycles.countDocuments(entry)) > 0 ? 'tooMany' : 'notRegistered'
}
