import { InvalidOutcome } from '../errors.js'
import { shown } from '../kept-text.js'
import { requireStorable } from '../storable.js'
import type { Wire } from './wire.js'

/**
 * The owner's fields that a thread's handler wants stored. What the engine checks too is checked here first, as what can't be
 * stored can't be sent either.
 * @throws InvalidOutcome
 */
export function encodedSet(set: unknown, wire: Wire): Uint8Array {
  if (typeof set !== 'object' || set === null || Array.isArray(set)) {
    throw new InvalidOutcome(`set: expected an object with the owner's fields, got ${shown(set)}`)
  }
  requireStorable(set)
  try {
    return wire.encode(set as Record<string, unknown>)
  } catch (error) {
    throw new InvalidOutcome(`set: can't be stored: ${(error as Error).message}`)
  }
}
