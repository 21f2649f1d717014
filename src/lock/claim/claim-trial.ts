import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import { ClaimTokens } from '../lease/lease.js'
import { ID_INDEX, type Terms } from '../terms/terms.js'
import { claimUpdate } from './claim-commands.js'

/** The server's limit for a document. */
const LARGEST = 16 * 1024 * 1024
/** The bytes that an outcome may add to a document: an error with its stack, and its history entry. */
const ROOM_FOR_AN_OUTCOME = 12_000

/**
 * Returns why the server would refuse a claim of a document, or its outcome: the document's size, or the collection's validator.
 * Undefined: no objection found (the owner's unique indexes aren't tried). Changes nothing.
 * @param stages the pipeline that yields the document. Default: as it is stored
 */
export async function whyNotClaimable(
  db: Db,
  name: string,
  terms: Terms,
  id: unknown,
  stages: readonly Document[] = [{ $match: { _id: id } }],
): Promise<string | undefined> {
  const collection = protocolCollection<Document>(db, name)
  const [claimed] = await trial(collection, terms, stages, { $match: {} })
  if (!claimed) return undefined
  const size = Number(claimed['size'])
  const mib = `${(size / 1024 / 1024).toFixed(3)} MiB`
  if (size > LARGEST) return `with Phaselock's fields it takes ${mib}, more than the 16 MiB that a document can have`
  const validator = await validatorOf(db, name)
  if (validator && (await trial(collection, terms, stages, { $match: validator })).length === 0) {
    return `the validator of ${name} refuses Phaselock's fields in it (lockedAt, lockedBy, fence, ${terms.progress}, createdAt, updatedAt)`
  }
  return size > LARGEST - ROOM_FOR_AN_OUTCOME
    ? `it is so large (${mib}) that an outcome may not fit into it`
    : undefined
}

function trial(collection: Collection, terms: Terms, stages: readonly Document[], then: Document): Promise<Document[]> {
  const { token } = new ClaimTokens('trial~000000', 1)
  const sized = { $project: { _id: 0, size: { $bsonSize: '$$ROOT' } } }
  const pipeline = [...stages, ...claimUpdate(terms, token), then, sized]
  return collection.aggregate(pipeline, { hint: ID_INDEX }).toArray()
}

async function validatorOf(db: Db, name: string): Promise<Document | undefined> {
  const [found] = await db.listCollections({ name }).toArray()
  const { validator, validationAction } = (found as Document | undefined)?.['options'] ?? {}
  return validationAction === 'warn' ? undefined : validator
}
