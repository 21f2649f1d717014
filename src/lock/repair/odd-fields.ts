import type { Document } from 'mongodb'
import { isNumber, isValid, typeName } from '../documents/type-name.js'

/** One of Phaselock's fields with a value of the wrong type. */
export interface OddField {
  readonly field: string
  /** The type of its value: 'a string', 'an array'. */
  readonly found: string
  /** True if a claim replaces it with a sound value; else it stays, and counts as missing. */
  readonly isMended: boolean
}

const isDate = (value: unknown) => value instanceof Date && isValid(value)

const CHECKS: readonly (readonly [field: string, isSound: (value: unknown) => boolean, isMended: boolean])[] = [
  ['phase', (value) => typeof value === 'string', false],
  ['lockedAt', isDate, true],
  ['lockedBy', (value) => typeof value === 'string', true],
  ['fence', isNumber, true],
  ['createdAt', isDate, false],
  ['updatedAt', isDate, false],
]

/** The fields that {@link oddFields} reads. */
export const CHECKED_FIELDS = { phase: 1, lockedAt: 1, lockedBy: 1, fence: 1, createdAt: 1, updatedAt: 1 } as const

/** Finds fields whose type isn't the one that Phaselock uses; missing ones and null are sound. None of them stops a document. */
export function oddFields(document: Document): OddField[] {
  const odd: OddField[] = []
  for (const [field, isSound, isMended] of CHECKS) {
    const value = document[field]
    if (value !== undefined && value !== null && !isSound(value)) odd.push({ field, found: typeName(value), isMended })
  }
  return odd
}
