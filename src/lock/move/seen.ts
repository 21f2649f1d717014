import { createHash } from 'node:crypto'
import type { Document, Filter } from 'mongodb'
import { idKey, isPlain, isValid } from '../documents/values.js'
import { hasToken, isParked } from '../lease/lease-state.js'
import { isDate, literal, PARKED_AT, type Terms } from '../terms/terms.js'

/*
 * What a person saw of a document before they acted on it: the fields that say where it is, who holds it and what its last step recorded. The fence alone
 * doesn't do, because rules, wakes, unparks and set states leave it as it is. Of a held document its `lockedAt` says only how recently its lease was
 * renewed, which changes every few seconds: its token stands for both.
 *
 * Invariant: of several actions with the same digest on a document, only the first changes it: each puts the values that it has read, and that gave the
 * digest, into the condition of its own write.
 */

type Named = Pick<Terms, 'progress'>

const fieldsSeen = ({ progress }: Named): readonly string[] => [
  ...['phase', 'state', 'lockedAt', 'lockedBy', 'fence'],
  `${progress}.at`,
]

const LOCKED_AT = 2

/** The values of those fields; undefined: it has no such field. */
function valuesSeen(document: Document, { progress }: Named): readonly unknown[] {
  const { phase, state, lockedAt, lockedBy, fence } = document
  const own: unknown = document[progress]
  return [phase, state, lockedAt, lockedBy, fence, isPlain(own) ? own['at'] : undefined]
}

/** True if its `lockedAt` is renewed by a holder. */
const isRenewed = (document: Document): boolean =>
  hasToken(document) && document['lockedAt'] instanceof Date && !isParked(document)

const keyOf = (value: unknown): string => (value === undefined ? 'missing' : idKey(value))

const [OF_ALL, OF_ONE] = [12, 2]
const digest = (text: string, digits: number): string =>
  createHash('sha256').update(text).digest('hex').slice(0, digits)

const keysSeen = (document: Document, terms: Named): readonly string[] =>
  valuesSeen(document, terms).map((value, i) => (i === LOCKED_AT && isRenewed(document) ? 'renewed' : keyOf(value)))

/**
 * The digest of a document that was read: 24 hex digits. The first 12 are of all of it, with its `_id`; then come two of each field, which say what has
 * changed since.
 */
export function seenOf(document: Document, terms: Named): string {
  const keys = keysSeen(document, terms)
  return digest([idKey(document['_id']), ...keys].join('\0'), OF_ALL) + keys.map((key) => digest(key, OF_ONE)).join('')
}

export const isSeen = (text: string): boolean => /^[0-9a-f]{24}$/.test(text)

/** The fields of a document that are no longer as they were when `seen` was made. Empty: none that the digest shows. */
export function changedFields(seen: string, document: Document, terms: Named): string[] {
  // Whether its holder renews it says lockedBy: alone it is no change of lockedAt.
  const now = [seenOf(document, terms), seenOf({ ...document, lockedBy: null }, terms)]
  const of = (digits: string, i: number) => digits.slice(OF_ALL + i * OF_ONE, OF_ALL + (i + 1) * OF_ONE)
  return fieldsSeen(terms).filter(
    (_, i) => of(seen, i) !== of(now[0]!, i) && (i !== LOCKED_AT || of(seen, i) !== of(now[1]!, i)),
  )
}

/** Matches a document in which these fields are as they were read. */
export function isAsSeen(document: Document, terms: Named): Filter<Document> {
  const values = valuesSeen(document, terms)
  const same = fieldsSeen(terms).map((path, i) =>
    i === LOCKED_AT && isRenewed(document) ? STILL_RENEWED : isStill(`$${path}`, values[i]),
  )
  // The path leads into the elements of an array.
  const isOurs = { [isPlain(document[terms.progress]) ? '$eq' : '$ne']: [{ $type: `$${terms.progress}` }, 'object'] }
  const all = isPlain(document[terms.progress]) ? same : same.slice(0, -1)
  return { $expr: { $and: [isOurs, ...all] } }
}

const STILL_RENEWED = { $and: [isDate('$lockedAt'), { $lt: ['$lockedAt', PARKED_AT] }] }

function isStill(path: string, value: unknown): Document {
  if (value === undefined) return { $eq: [{ $type: path }, 'missing'] }
  if (!(value instanceof Date) || isValid(value)) return { $eq: [path, literal(value)] }
  // The server's dates go further than JavaScript's: one beyond them can't be sent back.
  const isBeyond = { $or: [{ $lt: [path, new Date(-8.64e15)] }, { $gt: [path, new Date(8.64e15)] }] }
  return { $and: [isDate(path), isBeyond] }
}
