import { CollectionMissing, VectorStoreRefused, VectorStoreUnavailable, WrongVector } from './errors.js'

/** The fields of the client's errors that are read here. */
interface ClientError {
  readonly status?: number
  readonly data?: { readonly status?: { readonly error?: string } | string }
  readonly retry_after?: number
  readonly name?: string
  readonly message?: string
  readonly cause?: { readonly code?: string }
}

/** The status of an answer; undefined if there was none. */
export const statusOf = (error: unknown): number | undefined => (error as ClientError | undefined)?.status

/** Statuses that pass: timeouts, too many requests, and all from 500 on. */
const mayPass = (status: number) => status === 408 || status === 429 || status >= 500

/** Translates what the client throws. The original is the `cause`. */
export function problemOf(error: unknown, store: string, collection: string): Error {
  const { status, data, retry_after, name, message, cause } = (error ?? {}) as ClientError
  const words = (typeof data?.status === 'object' ? data.status.error : undefined) ?? message ?? String(error)
  const problem = status === undefined ? words : `${status} ${words}`.slice(0, 500)
  if (retry_after !== undefined && retry_after >= 0)
    return new VectorStoreUnavailable(store, problem, { retryAfter: `${Math.ceil(retry_after)}s`, cause: error })
  if (status === undefined) {
    // A request that got no answer, or a part of one: fetch throws TypeErrors of these words, and the client an error of its own for its timeout.
    const isAway = /^(fetch failed|terminated)$/.test(words) || name === 'QdrantClientTimeoutError' || !!cause?.code
    const why = cause?.code ? `${problem}: ${cause.code}` : problem
    return isAway ? new VectorStoreUnavailable(store, why, { cause: error }) : (error as Error)
  }
  if (mayPass(status)) return new VectorStoreUnavailable(store, problem, { cause: error })
  if (status === 404) return new CollectionMissing(store, collection)
  if (/dimension/i.test(words)) return new WrongVector(`collection '${collection}': ${words}`, { cause: error })
  const advice = status === 401 || status === 403 ? '; give the client an apiKey with the right to write' : ''
  return new VectorStoreRefused(store, problem + advice, { cause: error })
}
