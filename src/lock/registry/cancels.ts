import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { asReadable } from '../documents/read.js'
import { parseToken } from '../lease/lease.js'
import { LEASE_FIELDS, leaseStateOf } from '../lease/lease-state.js'
import { LIFECYCLES_COLLECTION, literal } from '../terms/terms.js'

/** A request to stop the work on one document under one claim; it doesn't affect any other claim of it. */
export interface CancelRequest {
  readonly _id: unknown
  /** The claim in the token that held it: `api-1~5f3a9c#1842`, at any step of the claim. */
  readonly claim: string
  /** The person who asked. */
  readonly by: string
  readonly reason: string | null
}

/** The most requests of one lifecycle at a time. */
export const MOST_CANCELS = 200
/** The time that a request is kept: after it each holder has looked, or has lost its lease. */
const KEPT_FOR_MS = 600_000

/** The part of a token that all steps of its claim share; undefined: it has no known form. */
export function claimOf(token: string): string | undefined {
  const parts = parseToken(token)
  return parts && `${parts.replica}#${parts.claim}`
}

/** Finds the claim that a document is held under now; undefined: there is no such document. */
export async function heldUnder(
  collection: Collection,
  id: unknown,
  settings: Parameters<typeof leaseStateOf>[1],
): Promise<{ readonly _id: unknown; readonly claim: string | undefined } | undefined> {
  const pipeline = [{ $match: { _id: id } }, { $project: { ...LEASE_FIELDS, now: '$$NOW' } }]
  const [found] = await asReadable((how) => collection.aggregate(pipeline, how).toArray())
  if (!found) return undefined
  const state = leaseStateOf(found, settings, found['now'])
  return { _id: found['_id'], claim: state.kind === 'held' && state.by !== undefined ? claimOf(state.by) : undefined }
}

/** Reads the stored requests. A person may have put anything there: other values are passed over. */
export function storedCancels(stored: unknown): readonly CancelRequest[] {
  if (!Array.isArray(stored)) return []
  return stored.slice(0, MOST_CANCELS).flatMap((one): CancelRequest[] => {
    const { _id, claim, by, reason } = (one ?? {}) as Document
    if (_id === undefined || typeof claim !== 'string') return []
    const asked = typeof by === 'string' ? by : '?'
    return [{ _id, claim, by: asked, reason: typeof reason === 'string' ? reason : null }]
  })
}

const known = { $cond: [{ $isArray: '$cancels' }, '$cancels', []] }
const isRecent = {
  $and: [
    { $eq: [{ $type: '$$this.at' }, 'date'] },
    { $gt: ['$$this.at', { $subtract: ['$$NOW', KEPT_FOR_MS] }] },
    { $lt: ['$$this.at', { $add: ['$$NOW', KEPT_FOR_MS] }] },
  ],
}

/** Asks for a stop; the holder finds it with its next look. `tooMany`: {@link MOST_CANCELS} were asked for within ten minutes. */
export async function addCancel(
  db: Db,
  lifecycle: string,
  { _id, claim, by, reason }: CancelRequest,
): Promise<'asked' | 'notRegistered' | 'tooMany'> {
  const lifecycles = protocolCollection<Document & { _id: string }>(db, LIFECYCLES_COLLECTION)
  const isSame = { $and: [{ $eq: ['$$this.claim', literal(claim)] }, { $eq: ['$$this._id', literal(_id)] }] }
  const others = { $filter: { input: known, cond: { $and: [isRecent, { $not: [isSame] }] } } }
  const request = {
    ...{ _id: literal(_id), claim: literal(claim), by: literal(by), reason: literal(reason), at: '$$NOW' },
  }
  const { matchedCount } = await lifecycles.updateOne(
    { _id: lifecycle, $expr: { $lt: [{ $size: others }, MOST_CANCELS] } },
    [{ $set: { cancels: { $concatArrays: [others, [request]] } } }],
  )
  if (matchedCount > 0) return 'asked'
  return (await lifecycles.countDocuments({ _id: lifecycle })) > 0 ? 'tooMany' : 'notRegistered'
}

/** The name of the error that a cancel leaves in its document. */
export const CANCELLED = 'Cancelled'

/** Puts a request in words: `cancelled by ana: stuck`. */
export const cancelText = ({ by, reason }: Pick<CancelRequest, 'by' | 'reason'>): string =>
  `cancelled by ${by}${reason === null ? '' : `: ${reason}`}`
