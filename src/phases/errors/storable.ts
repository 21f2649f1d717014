import { whyNotStorable } from '../../lock/index.js'
import { InvalidOutcome } from './errors.js'
import { shown } from './kept-text.js'

/**
 * Refuses values that the driver would silently drop, or store as something else.
 * @throws InvalidOutcome with the field's path, what came and what to store instead
 */
export function requireStorable(fields: unknown, what: 'set' | 'insert' = 'set'): void {
  const problem = whyNotStorable(fields)
  if (problem !== undefined) throw new InvalidOutcome(`${what}: ${problem}`)
}

/**
 * Measures or encodes the owner's fields of an outcome.
 * @throws InvalidOutcome for a value that isn't an object, or has values that can't be stored as they are
 */
export function withSet<Result>(set: unknown, use: (fields: Record<string, unknown>) => Result): Result {
  if (typeof set !== 'object' || set === null || Array.isArray(set)) {
    throw new InvalidOutcome(`set: expected an object with the owner's fields, got ${shown(set)}`)
  }
  try {
    requireStorable(set)
    return use(set as Record<string, unknown>)
  } catch (error) {
    if (error instanceof InvalidOutcome) throw error
    throw new InvalidOutcome(`set: can't be stored: ${(error as Error).message}`)
  }
}
