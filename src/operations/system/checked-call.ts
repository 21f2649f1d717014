import { isA, isServerError } from '../../database/index.js'
import { shown, t } from '../../options/index.js'
import { OperationError, UsageError } from './errors.js'

/** The types of a function's arguments, each with its name for messages. */
export type ArgumentTypes = readonly (readonly [name: string, type: t.Type])[]

/**
 * The same function with its arguments checked, whose errors for values that it was given are UsageErrors. It is how every function that acts on
 * a system is exported, so that a caller which passes on what people wrote (an API, a console) has three kinds of refusal and no others.
 * @throws UsageError with all problems of the arguments
 */
export function checkedCall<A extends readonly unknown[], T>(
  called: string,
  types: ArgumentTypes,
  act: (...given: A) => Promise<T>,
): (...given: A) => Promise<T> {
  return async (...given) => {
    const problems = types.flatMap(([name, type], i) => problemsOf(name, type, given[i]))
    if (problems.length > 0) throw new UsageError(`${called}: ${problems.join('; ')}`)
    try {
      return await act(...given)
    } catch (error) {
      throw asOperationError(error)
    }
  }
}

function problemsOf(name: string, type: t.Type, given: unknown): string[] {
  const read = t.readAs(type, given)
  if ('value' in read) return []
  return read.problems.map(({ path, message }) => `${[name, ...path].join('.')}: ${message}`)
}

/** The most characters of a text that people write (an `_id`, a name, a reason), and of a message about it. */
const MOST_CHARACTERS = 16_384

/** Errors that say which given value can't be used, by name: an app may have its own copy of Phaselock. */
const OF_VALUES: ReadonlySet<string> = new Set([
  'InvalidDocument',
  'InvalidDuration',
  'InvalidOptions',
  'InvalidSchedule',
  'UnknownTimeZone',
])
/** The codes of the server's answers to a value that is too large, or nested too deeply. */
const TOO_LARGE = [15, 10_334, 17_280, 17_419, 17_420]

/** A UsageError for the error of a value that was given; any other error as it is. */
export function asOperationError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof OperationError) return error
  if (OF_VALUES.has(error.name)) return new UsageError(error.message.slice(0, MOST_CHARACTERS))
  // The driver's own, before anything is sent: a NUL in a field's name, a document that contains itself, one beyond the largest message.
  if (isA(error, 'BSONError') || isServerError(error, ...TOO_LARGE) || isOversized(error))
    return new UsageError(`expected values that MongoDB can store: ${error.message}`)
  return error
}

const isOversized = ({ name, message }: Error): boolean =>
  /^Mongo/.test(name) ? /larger than the maximum|BSONObj(ect)? (size|too large)/i.test(message) : name === 'RangeError'

/** A text of people. */
export const aText = t.where<string>(
  (value) => typeof value === 'string' && value.length <= MOST_CHARACTERS,
  (value) =>
    typeof value === 'string'
      ? `expected at most ${MOST_CHARACTERS} characters, got ${value.length}`
      : `expected a string, got ${shown(value)}`,
)
