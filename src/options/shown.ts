/** A value as an error message shows it: `'10s'`, `5`, `an object with db, connect`. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return `'${value}'`
  if (typeof value === 'function') return 'a function'
  if (typeof value !== 'object' || value === null) return String(value)
  const { name = 'Object' } = Object.getPrototypeOf(value)?.constructor ?? {}
  return name === 'Object' ? `an object with ${Object.keys(value).join(', ') || 'nothing'}` : `a ${name}`
}
