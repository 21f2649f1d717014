import { InvalidOptions } from 'phaselock'

/** The expectation of an option in words, where the value doesn't meet it. Options whose values are checked elsewhere have `anything`. */
export type Check = (value: unknown) => string | undefined

/** A check for each option, so that an option can't be added without becoming known. */
export type Checks<T> = { readonly [Name in keyof T]-?: Check }

export const anything: Check = () => undefined

export const aFunction: Check = (value) =>
  value === undefined || typeof value === 'function' ? undefined : 'a function'

/** An object with these methods, which has to be given. */
export const having =
  (expected: string, ...methods: readonly string[]): Check =>
  (value) => {
    const found = Object(value) as Readonly<Record<string, unknown>>
    return methods.every((method) => typeof found[method] === 'function') ? undefined : expected
  }

/**
 * Checks the options of a call: unknown ones are refused, and each known one is looked at.
 * @throws InvalidOptions with all problems
 */
export function checkOptions<T extends object>(called: string, checks: Checks<T>, options: T): T {
  if (typeof options !== 'object' || options === null)
    throw new InvalidOptions(called, [`expected an object with options, got ${shown(options)}`])
  const known = Object.keys(checks)
  const problems = Object.keys(options)
    .filter((name) => !known.includes(name))
    .map((name) => `unknown option '${name}'; known: ${known.join(', ')}`)
  for (const [name, check] of Object.entries<Check>(checks)) {
    const value = (options as Readonly<Record<string, unknown>>)[name]
    const expected = check(value)
    if (expected !== undefined) problems.push(`${name}: expected ${expected}, got ${shown(value)}`)
  }
  if (problems.length > 0) throw new InvalidOptions(called, problems)
  return options
}

/** Objects and text aren't shown: they may have secrets in them. */
const shown = (value: unknown): string => {
  if (value === null || ['undefined', 'number', 'boolean'].includes(typeof value)) return String(value)
  return typeof value === 'string' ? 'text' : `${typeof value === 'object' ? 'an' : 'a'} ${typeof value}`
}
