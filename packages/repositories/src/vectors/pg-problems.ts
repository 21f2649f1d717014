import { VectorStoreRefused, VectorStoreUnavailable, WrongVector } from './errors.js'

/**
 * SQLSTATEs that pass: connection exceptions (08), the transaction was rolled back (40), no resources (53), an operator's intervention such as a
 * shutdown (57), and a system error (58).
 */
const PASSES = /^(08|40|53|57|58)/
/** Errors of `pg` itself, which have no code. */
const NO_ANSWER = /timeout|connection (terminated|error)/i
const NO_RIGHT = '42501'
const NO_EXTENSION = /extension "vector"/

/** Translates what the pool throws. The original is the `cause`. */
export function problemOf(error: unknown, store: string, collection: string): Error {
  const { code, message = String(error) } = (error ?? {}) as { code?: string; message?: string }
  // A socket's error: ECONNREFUSED, EPIPE. No class of SQLSTATEs begins with E.
  const isAway = code === undefined ? NO_ANSWER.test(message) : code.startsWith('E') || PASSES.test(code)
  if (isAway) return new VectorStoreUnavailable(store, message.slice(0, 500), { cause: error })
  if (code === undefined) return error as Error
  if (code === '22000' && /dimensions/.test(message))
    return new WrongVector(`collection '${collection}': ${message}`, { cause: error })
  const advice = NO_EXTENSION.test(message)
    ? '; install pgvector on the server, and run `create extension vector` as a user who may'
    : code === NO_RIGHT
      ? `; give this user the right, or create the table of '${collection}' as another user`
      : ''
  return new VectorStoreRefused(store, `${code} ${message.slice(0, 500)}${advice}`, { cause: error })
}
