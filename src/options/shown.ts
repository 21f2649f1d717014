/** Quotes a text as one word of a POSIX shell. */
export const shellQuoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

/** Formats a name for typing in a shell: quoted if necessary. */
export const typed = (name: string): string => (/^[\w.-]+$/.test(name) ? name : shellQuoted(name))

/** A replacer for `JSON.stringify`, which turns an error into `{}`: yields its name and message. */
export const withErrors = (_name: string, value: unknown): unknown =>
  value instanceof Error ? `${value.name}: ${value.message}` : value

/** A count with its noun: `1 slot`, `2 slots`, `2 children`. */
export const numbered = (count: number, one: string, several = `${one}s`): string =>
  `${count} ${count === 1 ? one : several}`

/** The most characters of a value in a message: whoever reads it needs the beginning. */
const LONGEST = 500
const cut = (text: string): string => (text.length > LONGEST ? `${text.slice(0, LONGEST)}...` : text)

/** Formats a value for an error message: `'10s'`, `5`, `an object with db, connect`. */
export function shown(value: unknown): string {
  if (typeof value === 'string')
    return value.length > LONGEST ? `'${cut(value)}' (${value.length} characters)` : `'${value}'`
  if (typeof value === 'function') return 'a function'
  if (typeof value !== 'object' || value === null) return String(value)
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'an invalid date' : value.toISOString()
  const { name = 'Object' } = Object.getPrototypeOf(value)?.constructor ?? {}
  if (name === 'Object') return `an object with ${cut(Object.keys(value).join(', ')) || 'nothing'}`
  return `${/^[AEIO]/i.test(name) ? 'an' : 'a'} ${name}`
}
