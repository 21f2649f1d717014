import { InvalidOptions } from 'phaselock'
import { durationMs } from 'phaselock/tasks'

/** Reads one option: returns what it stands for, or throws an error with what was expected and what came. */
export type Reads<T> = (value: unknown, name: string) => T

/**
 * Checks the options of a call: unknown ones are refused, and each known one is read. An option that isn't given is read as undefined.
 * @throws InvalidOptions with all problems
 */
export function checked<R extends Readonly<Record<string, Reads<unknown>>>>(
  called: string,
  reads: R,
  given: object | undefined,
): { readonly [K in keyof R]: ReturnType<R[K]> } {
  const values = (given ?? {}) as Readonly<Record<string, unknown>>
  const problems: string[] = []
  if (typeof values !== 'object')
    throw new InvalidOptions(called, [`expected an object with options, got ${shown(given)}`])
  for (const name of Object.keys(values))
    if (!Object.hasOwn(reads, name)) problems.push(`unknown option '${name}'; known: ${Object.keys(reads).join(', ')}`)
  const read: Record<string, unknown> = {}
  for (const [name, reading] of Object.entries(reads)) {
    try {
      read[name] = reading(values[name], name)
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error))
    }
  }
  if (problems.length > 0) throw new InvalidOptions(called, problems)
  return read as { readonly [K in keyof R]: ReturnType<R[K]> }
}

/** A value for messages. */
export const shown = (value: unknown): string => {
  if (typeof value === 'string') return `'${value.length > 80 ? `${value.slice(0, 80)}...` : value}'`
  return typeof value === 'object' && value !== null
    ? 'an object'
    : typeof value === 'function'
      ? 'a function'
      : String(value)
}

/** Takes the option as it is, if it passes; undefined where it isn't given. */
export const optional =
  <T>(passes: (value: unknown) => boolean, expected: string): Reads<T | undefined> =>
  (value, name) => {
    if (value === undefined || passes(value)) return value as T | undefined
    throw new Error(`${name}: expected ${expected}, got ${shown(value)}`)
  }

export const aFlag = optional<boolean>((value) => typeof value === 'boolean', 'true or false')
export const aFunction = <T>(): Reads<T | undefined> =>
  optional<T>((value) => typeof value === 'function', 'a function')
export const having = <T>(methods: readonly string[], expected: string): Reads<T | undefined> =>
  optional<T>(
    (value) =>
      typeof value === 'object' &&
      value !== null &&
      methods.every((method) => typeof (value as Record<string, unknown>)[method] === 'function'),
    expected,
  )

/** Reads a duration in milliseconds, more than 0 and at most `most`. */
export const aDuration =
  (most = '36500d'): Reads<number | undefined> =>
  (value, name) => {
    if (value === undefined) return undefined
    const ms = durationMs(value as string, name)
    if (ms > 0 && ms <= durationMs(most)) return ms
    throw new Error(`${name}: expected more than 0 and at most ${most}, got ${shown(value)}`)
  }

/** Refuses an option that isn't given. */
export const required =
  <T>(reads: Reads<T | undefined>): Reads<T> =>
  (value, name) => {
    const read = reads(value ?? null, name)
    return read as T
  }

export const aText = optional<string>((value) => typeof value === 'string', 'text')

/** The name of an environment. */
export const anEnvironment = optional<string>(
  (value) => typeof value === 'string' && /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(value),
  "1 to 64 letters, digits, '.', '_' or '-', of which the first is a letter or digit",
)

/** The environment of an app that gives none: PHASELOCK_ENVIRONMENT, else `default`. */
export const environmentIn = (env: Readonly<Record<string, string | undefined>>): string =>
  env['PHASELOCK_ENVIRONMENT'] || 'default'
