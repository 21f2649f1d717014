/** One word of a POSIX shell. */
export const shellQuoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

/** A name as one types it in a shell: quoted where it has to be. */
export const typed = (name: string): string => (/^[\w.-]+$/.test(name) ? name : shellQuoted(name))

/** For `JSON.stringify`, which makes `{}` of an error: its name and message. */
export const withErrors = (_name: string, value: unknown): unknown =>
  value instanceof Error ? `${value.name}: ${value.message}` : value

/** How many there are of something: `1 slot`, `2 slots`, `2 children`. */
export const numbered = (count: number, one: string, several = `${one}s`): string =>
  `${count} ${count === 1 ? one : several}`

/** A value as an error message shows it: `'10s'`, `5`, `an object with db, connect`. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return `'${value}'`
  if (typeof value === 'function') return 'a function'
  if (typeof value !== 'object' || value === null) return String(value)
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'an invalid date' : value.toISOString()
  const { name = 'Object' } = Object.getPrototypeOf(value)?.constructor ?? {}
  if (name === 'Object') return `an object with ${Object.keys(value).join(', ') || 'nothing'}`
  return `${/^[AEIO]/i.test(name) ? 'an' : 'a'} ${name}`
}
