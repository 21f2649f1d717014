import type { Db } from 'mongodb'
import { type Duration, durationMs, formatMs } from '../time/index.js'
import { ownReads } from './own-reads.js'
import { shown } from './shown.js'
import { checked, converted, expecting, fits, optional, prepared, type Type, where } from './type.js'

export * from './type.js'

export const flag = where<boolean>((value) => typeof value === 'boolean', expecting('true or false'))
export const text = where<string>((value) => typeof value === 'string', expecting('a string'))
export const name = checked(text, (value) => value !== '', 'expected a name, got an empty string')
export const aNumber = where<number>(Number.isFinite, expecting('a number'))
export const aDate = where<Date>(
  (value) => value instanceof Date && !Number.isNaN(value.getTime()),
  expecting('a date'),
)
export const anything = <T>() => optional(where<T>(() => true, ''))

export const aFunction = <T = unknown>(what = 'a function') =>
  where<T>((value) => typeof value === 'function', expecting(what))

export const oneOf = <const T extends string>(values: readonly T[]) =>
  where<T>((value) => values.includes(value as T), expecting(`one of ${values.join(', ')}`))

export const matching = (what: string, pattern: RegExp) => {
  const trimmed = converted(
    where<string>((value) => typeof value === 'string', expecting(what)),
    (value) => value.trim(),
  )
  return checked(trimmed, (value) => pattern.test(value), expecting(what))
}

const DATABASE_NAME = /^[^/\\. "$*<>:|?\0]{1,63}$/

export const aDatabaseName = where<string>(
  (value) => typeof value === 'string' && DATABASE_NAME.test(value),
  expecting('the name of a database (1 to 63 characters, no space and none of / \\ . " $ * < > : | ?)'),
)

/** Matches names that the driver and the server accept for a collection, short enough for any database's name before it. */
export const COLLECTION_NAME = /^(?!system\.|\.)(?!.*\.\.)[^$\0]{1,200}(?<!\.)$/

/** An object with these methods; never `instanceof`: an app may bring a driver of its own (Mongoose does). */
export const having = <T = object>(methods: readonly string[], what: string) =>
  where<T>(
    (value) =>
      typeof value === 'object' && value !== null && methods.every((m) => typeof Reflect.get(value, m) === 'function'),
    expecting(what),
  )

/** Converts to the same database, read as Phaselock reads its own fields. */
export const aDatabase = converted(
  having<Db>(['collection'], "a database from the driver (client.db('shop'))"),
  ownReads,
)

/** A lifecycle, with its handlers or without. */
export const aLifecycle = <T extends object>(what: string) =>
  where<T>((value) => Object(Object(value).model).phases instanceof Map, expecting(what))

export const whole = (least: number, most: number, more = '') =>
  where<number>(
    (value) => Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
    expecting(`a whole number from ${least} to ${most}${more}`),
  )

/** A value given as a string, by a flag or the environment: digits become a number; an invalid value is shown as it was given. */
export const fromText = <T>(type: Type<T>) =>
  prepared((given) => {
    const value = /^\s*\d+\s*$/.test(String(given)) ? Number(given) : given
    return fits(type, value) ? value : given
  }, type)

/** A duration with its unit, returned unchanged. */
export const durationText = (least: Duration, most: Duration) => {
  const [leastMs, mostMs] = [durationMs(least), durationMs(most)]
  return where<Duration>(
    (value) => {
      const ms = msOf(value)
      return ms >= leastMs && ms <= mostMs
    },
    (value) =>
      `expected a duration from ${least} to ${most}, such as ${examples(least, most)}, got ${shown(value)}${advice(value)}`,
  )
}

/** A duration with its unit, converted to milliseconds. */
export const duration = (least: Duration, most: Duration) => converted(durationText(least, most), msOf)

/** A duration in milliseconds; NaN if the value isn't a duration. */
export function msOf(value: unknown): number {
  try {
    return durationMs(value as string)
  } catch {
    return Number.NaN
  }
}

/** Some that would be taken: the shortest one where the range has none of the usual ones. */
const examples = (least: Duration, most: Duration): string => {
  const taken = EXAMPLES.filter((one) => durationMs(one) >= durationMs(least) && durationMs(one) <= durationMs(most))
  const shownOnes = (taken.length > 0 ? taken.slice(0, 3) : [least]).map(shown)
  return [shownOnes.slice(0, -1).join(', '), ...shownOnes.slice(-1)].filter(Boolean).join(' or ')
}
const EXAMPLES: readonly Duration[] = ['500ms', '30s', '5m', '2h', '1d', '30d']

const advice = (value: unknown): string =>
  /^\d+(\.\d+)?$/.test(String(value).trim())
    ? `; add the unit ('${String(value).trim()}s' is ${formatMs(Number(value) * 1_000)})`
    : ''
