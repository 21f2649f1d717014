import type { MongoBulkWriteError, MongoError } from 'mongodb'

/**
 * Server errors that say nothing about the document: interrupted or killed, shutting down, not primary, over its time,
 * waiting for a lock, out of disk space, not authorized (any more), over the quota (Atlas).
 */
const UNKNOWN_OUTCOME_CODES = new Set([
  6, 7, 13, 18, 24, 46, 50, 64, 89, 91, 112, 133, 134, 175, 189, 202, 237, 262, 8000, 9001, 10058, 10107, 11600, 11601,
  11602, 13435, 13436, 14031, 46841, 50915,
])

/**
 * Whether a write was refused for the document's own sake, so that sending it again would fail alike: by the server (its
 * validator, its size, a type, a unique index), or by the driver, which can't put it into a command (a set of 20 MB).
 * Everything else (network, timeout, failover, write concern) has an unknown outcome: read back before anything is sent
 * again.
 */
export function isDefiniteRefusal(error: unknown): error is Error {
  if (!isDatabaseError(error)) return true
  if (isA(error, 'MongoInvalidArgumentError')) return true
  if (!isA(error, 'MongoServerError') || isA(error, 'MongoWriteConcernError')) return false
  if (error.hasErrorLabel('RetryableWriteError') || error.hasErrorLabel('PoolRequestedRetry')) return false
  if (isA(error, 'MongoBulkWriteError') && (error as MongoBulkWriteError).result.getWriteConcernError()) return false
  return typeof error.code === 'number' && !UNKNOWN_OUTCOME_CODES.has(error.code)
}

/** Whether it is the database's fault and not that of a document or of this program. */
export const isDatabaseError = (error: unknown): error is MongoError => isA(error, 'MongoError')

/**
 * `instanceof` by the class's name: an app whose connection is Mongoose's has errors of another copy of the driver, and a
 * network error of it must not pass for a refusal.
 */
function isA(error: unknown, name: string): boolean {
  for (let at = error; typeof at === 'object' && at !== null; at = Object.getPrototypeOf(at)) {
    if (at.constructor?.name === name) return true
  }
  return false
}
