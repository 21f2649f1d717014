import type { MongoBulkWriteError, MongoError } from 'mongodb'
import { isA } from '../../database/index.js'

/**
 * The server's errors that come from the document itself: sent again, the same write fails the same way. Only known ones are listed
 * (measured, `test/lock/write-error.test.ts`). Missing on purpose: 2 BadValue and 9 FailedToParse, which a missing index and a command
 * of another version also cause.
 */
const OWN_SAKE_CODES = new Set([
  ...[14, 15, 22, 241, 28651, 28664, 28724, 28729, 40390, 40400], // a type, a number or nesting that our expressions can't handle
  ...[10003, 10334, 17419, 17420], // larger than a document may be
  ...[52, 56, 57, 66, 121], // the owner's validator; names and fields that can't be written
  ...[11000, 11001], // a unique index
  ...[171, 510, 13026, 13027, 13067, 13068, 16755, 16766, 16804, 17261, 17262, 17280], // a value that an index of the owner's can't hold
])

/**
 * True if a write was refused because of the document itself, so that sending it again would fail the same way: by the server, or
 * by the driver, which can't put it into a command (a set of 20 MB). Everything else (network, timeout, failover, write concern,
 * any unknown error) has an unknown outcome: it is read back before anything is sent again, and no document is blamed for it.
 */
export function isDefiniteRefusal(error: unknown): error is Error {
  if (isA(error, 'MongoInvalidArgumentError') || isA(error, 'BSONError') || isA(error, 'RangeError')) return true
  if (!isA(error, 'MongoServerError') || isA(error, 'MongoWriteConcernError')) return false
  const refusal = error as MongoError
  if (refusal.hasErrorLabel('RetryableWriteError') || refusal.hasErrorLabel('PoolRequestedRetry')) return false
  const result = isA(error, 'MongoBulkWriteError') ? (error as MongoBulkWriteError).result : undefined
  if (result?.getWriteConcernError()) return false
  // Of a bulk that goes on after an error, the first may be a document's and another one not.
  const errors = result?.hasWriteErrors() ? result.getWriteErrors() : [refusal]
  return errors.every(({ code }) => OWN_SAKE_CODES.has(code as number))
}

const TOO_LARGE: ReadonlySet<unknown> = new Set([10003, 10334, 17419, 17420])

/** True if a write was refused because it makes a document larger than one may be, or a command larger than the driver can send. */
export function isTooLarge(error: unknown): boolean {
  if (isA(error, 'RangeError')) return true
  const { message, code } = error as MongoError
  return isA(error, 'MongoInvalidArgumentError')
    ? /larger than/.test(message)
    : isA(error, 'MongoServerError') && TOO_LARGE.has(code)
}

const OVER_TIME = 50

/** True if the server ended a command for its `maxTimeMS` while it wrote, not while it waited for the other members. */
export const isOverTime = (error: unknown): boolean =>
  isA(error, 'MongoServerError') && !isA(error, 'MongoWriteConcernError') && (error as MongoError).code === OVER_TIME

/** True if it is the database's fault, not a document's or this program's. */
export const isDatabaseError = (error: unknown): error is MongoError => isA(error, 'MongoError')
