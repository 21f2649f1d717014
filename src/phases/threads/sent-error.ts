import { InvalidOutcome, Unavailable } from '../errors.js'
import { textOf } from '../kept-text.js'

/** Anything that was thrown, on its way between threads. */
export interface SentError {
  /** False: what was thrown is no Error; its text is the message. */
  readonly isError: boolean
  readonly name: string
  readonly message: string
  readonly stack: string | undefined
  readonly code: string | number | undefined
  /** Of Unavailable. */
  readonly retryAfterMs: number | undefined
  readonly cause: SentError | undefined
}

const MOST_CAUSES = 5

/** Never throws: an error's properties may be getters written by its author. */
export function sentError(thrown: unknown, causes = 0): SentError {
  const read = <T>(get: () => unknown, is: (value: unknown) => value is T): T | undefined => {
    try {
      const value = get()
      return is(value) ? value : undefined
    } catch {
      return undefined
    }
  }
  const error = thrown as Record<string, unknown>
  const isError = thrown instanceof Error
  const cause = isError && causes < MOST_CAUSES ? read(() => error['cause'], isThere) : undefined
  return {
    isError,
    name: (isError && read(() => error['name'], isText)) || 'Error',
    message: isError ? (read(() => error['message'], isText) ?? '') : textOf(thrown),
    stack: isError ? read(() => error['stack'], isText) : undefined,
    code: isError ? read(() => error['code'], isCode) : undefined,
    retryAfterMs: isError ? read(() => error['retryAfterMs'], isNumber) : undefined,
    cause: cause === undefined ? undefined : sentError(cause, causes + 1),
  }
}

/**
 * What was thrown, as what it means here. Classes are recognised by their names: the module in the thread may have loaded Phaselock
 * from another file.
 */
export function receivedError(sent: SentError): unknown {
  if (!sent.isError) return sent.message
  const cause = sent.cause === undefined ? undefined : receivedError(sent.cause)
  const error = errorOf(sent, cause)
  if (sent.stack !== undefined) error.stack = sent.stack
  if (sent.code !== undefined) Object.assign(error, { code: sent.code })
  return error
}

function errorOf({ name, message, retryAfterMs }: SentError, cause: unknown): Error {
  const options = cause === undefined ? undefined : { cause }
  if (name === 'Unavailable') {
    return new Unavailable(message, { cause, ...(isNumber(retryAfterMs) && { retryAfter: `${retryAfterMs}ms` }) })
  }
  if (name === 'InvalidOutcome') return new InvalidOutcome(message, options)
  const error = new Error(message, options)
  if (name !== 'Error') Object.defineProperty(error, 'name', { value: name, configurable: true })
  return error
}

const isText = (value: unknown): value is string => typeof value === 'string'
const isNumber = (value: unknown): value is number => typeof value === 'number' && value >= 0
const isCode = (value: unknown): value is string | number => isText(value) || typeof value === 'number'
const isThere = (value: unknown): value is unknown => value !== undefined && value !== null
