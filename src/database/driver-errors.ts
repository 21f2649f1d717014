import type { MongoBulkWriteError, MongoNetworkError, MongoServerError } from 'mongodb'

/**
 * `instanceof` by class name: an app that uses Mongoose's connection gets errors from another copy of the driver, and its
 * network errors must not pass for refusals.
 */
export function isA(error: unknown, name: string): boolean {
  for (let at = error; typeof at === 'object' && at !== null; at = Object.getPrototypeOf(at)) {
    if (at.constructor?.name === name) return true
  }
  return false
}

/** True if the server answered with an error: with one of these codes, if any are given. */
export const isServerError = (error: unknown, ...codes: readonly number[]): error is MongoServerError =>
  isA(error, 'MongoServerError') && (codes.length === 0 || codes.includes(Number((error as MongoServerError).code)))
export const isNetworkError = (error: unknown): error is MongoNetworkError => isA(error, 'MongoNetworkError')
export const isBulkWriteError = (error: unknown): error is MongoBulkWriteError => isA(error, 'MongoBulkWriteError')

const DUPLICATE_KEY = 11000

/**
 * True if the server refused a write, or one of a bulk, because a unique index has such a key already. It goes by the code: an app
 * may bring another copy of the driver.
 */
export const isDuplicateKey = (error: unknown): boolean =>
  (error as { readonly code?: unknown } | null | undefined)?.code === DUPLICATE_KEY

/** The codes of a server's answers while no member is primary: NotWritablePrimary, NotPrimaryNoSecondaryOk, and those of a change of state. */
const NO_PRIMARY: readonly unknown[] = [91, 189, 10_107, 11_600, 11_602, 13_435, 13_436]

/** True if a command failed because the server didn't answer it, couldn't be reached, or no member is primary just now. */
export function isOutage(error: unknown): boolean {
  const { name = '', code } = (error ?? {}) as { readonly name?: string; readonly code?: unknown }
  return (
    /^(NoAnswer|MongoNetwork|MongoServerSelection|MongoPool|MongoWaitQueue)/.test(name) || NO_PRIMARY.includes(code)
  )
}
