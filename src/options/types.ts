import type { Db } from 'mongodb'
import { z } from 'zod'
import { type Duration, durationMs, formatMs } from '../time/index.js'
import { shown } from './shown.js'

/** `expected ..., got ...`: the wording of every option's problem. */
export const expecting = (what: string) => ({
  error: (issue: { readonly input?: unknown }) => `expected ${what}, got ${shown(issue.input)}`,
})

export const flag = z.boolean(expecting('true or false'))
export const text = z.string(expecting('a string'))
export const aName = text.min(1, 'expected a name, got an empty string')
export const aFunction = (what = 'a function') => z.custom((value) => typeof value === 'function', expecting(what))
export const anything = z.unknown().optional()

export const oneOf = <const T extends readonly [string, ...string[]]>(values: T) =>
  z.enum(values, expecting(`one of ${values.join(', ')}`))

export const matching = (what: string, pattern: RegExp) =>
  z.string(expecting(what)).trim().regex(pattern, expecting(what))

/** What the driver and the server take as a collection's name, short enough for any database's name before it. */
export const COLLECTION_NAME = /^(?!system\.|\.)(?!.*\.\.)[^$\0]{1,200}(?<!\.)$/

/** An object with these methods; never `instanceof`: an app may bring a driver of its own (Mongoose does). */
export const having = <T = object>(methods: readonly string[], what: string) =>
  z.custom<T>(
    (value) =>
      typeof value === 'object' && value !== null && methods.every((m) => typeof Reflect.get(value, m) === 'function'),
    expecting(what),
  )

export const aDatabase = having<Db>(['collection'], "a database from the driver (client.db('shop'))")

export const whole = (least: number, most: number, more = '') =>
  z.custom<number>(
    (value) => Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
    expecting(`a whole number from ${least} to ${most}${more}`),
  )

/** A value given as a string, by a flag or the environment: digits become a number; what can't be used is shown as it was given. */
export const fromText = <T extends z.ZodType>(type: T) =>
  z.preprocess((given) => {
    const value = /^\s*\d+\s*$/.test(String(given)) ? Number(given) : given
    return type.safeParse(value).success ? value : given
  }, type)

/** A duration with its unit, left as it is. */
export const durationText = (least: Duration, most: Duration) => {
  const [leastMs, mostMs] = [durationMs(least), durationMs(most)]
  return z.custom<Duration>(
    (value) => {
      const ms = msOf(value)
      return ms >= leastMs && ms <= mostMs
    },
    {
      error: ({ input }) =>
        `expected a duration from ${least} to ${most}, such as '500ms', '30s' or '5m', got ${shown(input)}${advice(input)}`,
    },
  )
}

/** A duration with its unit, converted to milliseconds. */
export const duration = (least: Duration, most: Duration) => durationText(least, most).transform(msOf)

/** A duration in milliseconds; NaN: it is none. */
export function msOf(value: unknown): number {
  try {
    return durationMs(value as string)
  } catch {
    return Number.NaN
  }
}

const advice = (value: unknown): string =>
  /^\d+(\.\d+)?$/.test(String(value).trim())
    ? `; add the unit ('${String(value).trim()}s' is ${formatMs(Number(value) * 1_000)})`
    : ''
