import { BSON, type Collection, type Document } from 'mongodb'
import { ownersNumbers } from '../../database/index.js'
import { withParts } from './plain.js'

/*
 * A document for an owner's code, such as a handler, is read as the owner's client or database says: an int64 as a bigint, say.
 * Phaselock's own fields in it are numbers all the same.
 */

/** Options for reads of documents for their owner's code. */
export const ownersReading = (collection: Collection) => ownersNumbers(collection) ?? {}

/** A document that was read with {@link ownersReading}, with Phaselock's numbers as numbers. */
export function withOwnNumbers<T extends Document>(collection: Collection, progress: string, document: T): T {
  if (!ownersNumbers(collection)) return document
  const ours = ['fence', progress].filter((field) => field in document)
  return { ...document, ...Object.fromEntries(ours.map((field) => [field, withParts(document[field], asNumber)])) }
}

/** Converts as the driver promotes them: an int64 that no number can be stays a Long. */
function asNumber(value: unknown): unknown {
  if (value instanceof BSON.Int32 || value instanceof BSON.Double) return value.value
  const long = typeof value === 'bigint' ? BSON.Long.fromBigInt(value) : value
  if (!(long instanceof BSON.Long)) return value
  return Number.isSafeInteger(long.toNumber()) ? long.toNumber() : long
}
