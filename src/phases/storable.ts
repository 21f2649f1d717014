import { InvalidOutcome } from './errors.js'

/** The server's own limit for nested documents. */
const MOST_LEVELS = 100

/**
 * Refuses what the driver would drop, or store as something else, without a word.
 * @throws InvalidOutcome with the field's path
 */
export function requireStorable(value: unknown, path: readonly string[] = []): void {
  if (typeof value === 'function' || typeof value === 'symbol') {
    throw new InvalidOutcome(`set: '${path.join('.')}' is a ${typeof value}, which can't be stored`)
  }
  if (typeof value !== 'object' || value === null) return
  if (value instanceof Date) {
    if (!Number.isNaN(value.getTime())) return
    throw new InvalidOutcome(`set: '${path.join('.')}' is an invalid date, which would be stored as 1970-01-01`)
  }
  if (path.length > MOST_LEVELS) throw new InvalidOutcome(`set: deeper than ${MOST_LEVELS} levels, or a cycle`)
  if (!Array.isArray(value) && Object.getPrototypeOf(value) !== Object.prototype) return
  for (const [name, inner] of Object.entries(value)) {
    const isPlain =
      inner === null || (typeof inner !== 'object' && typeof inner !== 'function' && typeof inner !== 'symbol')
    if (!isPlain) requireStorable(inner, [...path, name])
  }
}
