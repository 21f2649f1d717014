import { InvalidOutcome, Unavailable } from '../errors/errors.js'
import { textOf, tried } from '../errors/kept-text.js'

/** Anything that was thrown, on its way between threads. */
export interface SentError {
  /** False: the value that was thrown is not an Error; its text is the message. */
  readonly isError: boolean
  readonly message: string
  readonly name?: string | undefined
  readonly stack?: string | undefined
  readonly code?: string | number | undefined
  /** For Unavailable. */
  readonly retryAfterMs?: number | undefined
  readonly cause?: SentError | undefined
  /** For an AggregateError. */
  readonly errors?: readonly SentError[] | undefined
}

const MOST_CAUSES = 5

/** Packs anything that was thrown. Never throws: an error's properties may be getters written by its author. */
export function sentError(thrown: unknown, causes = 0): SentError {
  if (!(thrown instanceof Error)) return { isError: false, message: textOf(thrown) }
  const read = <T>(field: string, is: (value: unknown) => value is T): T | undefined => {
    const value = tried(() => (thrown as unknown as Record<string, unknown>)[field])
    return is(value) ? value : undefined
  }
  const cause = causes < MOST_CAUSES ? read('cause', isThere) : undefined
  const errors = causes < MOST_CAUSES ? read('errors', Array.isArray) : undefined
  return {
    isError: true,
    message: read('message', isText) ?? '',
    name: read('name', isText),
    stack: read('stack', isText),
    code: read('code', isCode),
    retryAfterMs: read('retryAfterMs', isNumber),
    cause: cause === undefined ? undefined : sentError(cause, causes + 1),
    // Without causes of their own: a tree would grow with each level.
    errors: errors?.slice(0, MOST_CAUSES).map((one) => sentError(one, MOST_CAUSES)),
  }
}

/**
 * Unpacks a thrown value as its counterpart here. Classes are recognized by their names: the module in the thread may have loaded Phaselock from
 * another file.
 */
export function receivedError({ isError, name, message, retryAfterMs, ...sent }: SentError): unknown {
  if (!isError) return message
  const options = sent.cause && { cause: receivedError(sent.cause) }
  const error =
    name === 'Unavailable'
      ? new Unavailable(message, { ...options, ...(retryAfterMs !== undefined && { retryAfter: `${retryAfterMs}ms` }) })
      : name === 'InvalidOutcome'
        ? new InvalidOutcome(message, options)
        : new Error(message, options)
  if (name && error.name !== name) Object.defineProperty(error, 'name', { value: name, configurable: true })
  if (sent.stack !== undefined) error.stack = sent.stack
  if (sent.errors) Object.assign(error, { errors: sent.errors.map(receivedError) })
  if (sent.code !== undefined) Object.assign(error, { code: sent.code })
  return error
}

const isText = (value: unknown): value is string => typeof value === 'string'
const isNumber = (value: unknown): value is number => typeof value === 'number' && value >= 0
const isCode = (value: unknown): value is string | number => isText(value) || typeof value === 'number'
const isThere = (value: unknown): value is unknown => value !== undefined && value !== null
