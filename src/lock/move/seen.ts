import { createHash } from 'node:crypto'
import type { Document, Filter } from 'mongodb'
import { idKey, isPlain, isValid } from '../documents/values.js'
import { isDate, literal, type Terms } from '../terms/terms.js'

/*
 * What a person saw of a document before they acted on it: the fields that say where it is, who holds it and what its last step recorded. The fence alone
 * doesn't do, because rules, wakes, unparks and set states leave it as it is.
 *
 * Invariant: of several actions with the same digest on a document, only the first changes it: each puts the values that it has read, and that gave the
 * digest, into the condition of its own write.
 */

type Named = Pick<Terms, 'progress'>

const fieldsSeen = ({ progress }: Named): readonly string[] => [
  ...['phase', 'state', 'lockedAt', 'lockedBy', 'fence'],
  `${progress}.at`,
]

/** The values of those fields; undefined: it has no such field. */
function valuesSeen(document: Document, { progress }: Named): readonly unknown[] {
  const { phase, state, lockedAt, lockedBy, fence } = document
  const own: unknown = document[progress]
  return [phase, state, lockedAt, lockedBy, fence, isPlain(own) ? own['at'] : undefined]
}

const keyOf = (value: unknown): string => (value === undefined ? 'missing' : idKey(value))

const [OF_ALL, OF_ONE] = [12, 2]
const digest = (text: string, digits: number): string =>
  createHash('sha256').update(text).digest('hex').slice(0, digits)

/**
 * The digest of a document that was read: 24 hex digits. The first 12 are of all of it, with its `_id`; then come two of each field, which say what has
 * changed since.
 */
export function seenOf(document: Document, terms: Named): string {
  const keys = valuesSeen(document, terms).map(keyOf)
  return digest([idKey(document['_id']), ...keys].join('\0'), OF_ALL) + keys.map((key) => digest(key, OF_ONE)).join('')
}

export const isSeen = (text: string): boolean => /^[0-9a-f]{24}$/.test(text)

/** The fields of a document that are no longer as they were when `seen` was made. Empty: none that the digest shows. */
export function changedFields(seen: string, document: Document, terms: Named): string[] {
  const now = seenOf(document, terms)
  const of = (digits: string, i: number) => digits.slice(OF_ALL + i * OF_ONE, OF_ALL + (i + 1) * OF_ONE)
  return fieldsSeen(terms).filter((_, i) => of(seen, i) !== of(now, i))
}

/** Matches a document in which these fields are as they were read. */
export function isAsSeen(document: Document, terms: Named): Filter<Document> {
  const values = valuesSeen(document, terms)
  const same = fieldsSeen(terms).map((path, i) => isStill(`$${path}`, values[i]))
  // The path leads into the elements of an array.
  const isOurs = { [isPlain(document[terms.progress]) ? '$eq' : '$ne']: [{ $type: `$${terms.progress}` }, 'object'] }
  const all = isPlain(document[terms.progress]) ? same : same.slice(0, -1)
  return { $expr: { $and: [isOurs, ...all] } }
}

function isStill(path: string, value: unknown): Document {
  if (value === undefined) return { $eq: [{ $type: path }, 'missing'] }
  if (!(value instanceof Date) || isValid(value)) return { $eq: [path, literal(value)] }
  // The server's dates go further than JavaScript's: one beyond them can't be sent back.
  const isBeyond = { $or: [{ $lt: [path, new Date(-8.64e15)] }, { $gt: [path, new Date(8.64e15)] }] }
  return { $and: [isDate(path), isBeyond] }
}
