import { createHash } from 'node:crypto'
import { BSON, type Document, type Filter } from 'mongodb'
import { literal } from '../terms/terms.js'

/** Keys are kept in memory, so a longer one is replaced by its digest. */
const LONGEST = 500

/** An `_id` of any BSON type as a Map key: ids that the server considers equal have the same key. */
export function idKey(id: unknown): string {
  const key = wholeKey(id)
  return key.length > LONGEST ? `d${createHash('sha256').update(key).digest('base64')}` : key
}

function wholeKey(id: unknown): string {
  if (typeof id === 'string') return `s${id}`
  if (id instanceof BSON.ObjectId) return `o${id.toHexString()}`
  if (typeof id === 'bigint') return `n${id}`
  if (typeof id === 'number') return `n${id === 0 ? 0 : id}`
  if (id instanceof BSON.Long || id instanceof BSON.Int32 || id instanceof BSON.Double) return `n${id.toString()}`
  return `e${BSON.EJSON.stringify({ id }, { relaxed: false })}`
}

/** The approximate bytes that an `_id` takes in a command. */
export function idBytes(id: unknown): number {
  if (typeof id === 'string') return id.length < LONGEST ? id.length : Buffer.byteLength(id)
  if (typeof id !== 'object' || id === null || id instanceof BSON.ObjectId) return 16
  return BSON.calculateObjectSize({ id })
}

/** An `_id` in a form that can be typed in again. */
export function idText(id: unknown): string {
  if (typeof id === 'string') return id
  if (id instanceof BSON.ObjectId) return id.toHexString()
  if (id instanceof BSON.UUID) return id.toHexString(true)
  // Extended JSON would round a large one.
  if (id instanceof BSON.Long) return id.toString()
  return BSON.EJSON.stringify(id as never, { relaxed: true })
}

/** The type of a value from the database, for people: 'a string', 'an array', 'a Timestamp', 'missing'. */
export function typeName(value: unknown): string {
  if (value === undefined) return 'missing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'string') return 'a string'
  if (value instanceof Date) return isValid(value) ? 'a date' : 'a date outside the range of JavaScript'
  if (value instanceof RegExp) return 'a regular expression'
  if (typeof value !== 'object') return `a ${typeof value}`
  const bsonType = (value as { _bsontype?: unknown })._bsontype
  if (bsonType === undefined) return 'an object'
  if (bsonType === 'BSONRegExp') return 'a regular expression'
  return `${/^[AEIO]/.test(String(bsonType)) ? 'an' : 'a'} ${String(bsonType)}`
}

const NUMBERS: ReadonlySet<unknown> = new Set(['Long', 'Int32', 'Double', 'Decimal128'])
/** True if the server takes a value for a number. */
export const isNumber = (value: unknown): boolean =>
  typeof value === 'number' || NUMBERS.has((value as { _bsontype?: unknown } | null | undefined)?._bsontype)

/** True for a date that JavaScript has. The server's dates go further (beyond the year 275760): those are read as an Invalid Date. */
export const isValid = (date: Date): boolean => !Number.isNaN(date.getTime())

/** True if a value is an object without a class, as the driver reads a document. */
export const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

/** Copies a value. Each part that is neither an array nor a plain object becomes the result of `part`. */
export function withParts(value: unknown, part: (one: unknown) => unknown): unknown {
  if (Array.isArray(value)) return value.map((one) => withParts(one, part))
  if (!isPlain(value)) return part(value)
  // Not assigned: a field `__proto__` would become the object's prototype.
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, withParts(inner, part)]))
}

/*
 * An `_id` may be a document, whose fields have an order: { b: 1, '1': 2 } and { '1': 2, b: 1 } are different. JavaScript objects put
 * names that are whole numbers first, so the driver reads the first as the second, and no command of ours that names it matches. Here
 * it is matched field by field.
 */

/** True if an `_id` may be stored with its fields in another order than the one that was read. */
export function mayBeReordered(id: unknown): boolean {
  if (Array.isArray(id)) return id.some(mayBeReordered)
  if (!isPlain(id)) return false
  const names = Object.keys(id)
  return (names.length > 1 && names.some((name) => /^\d+$/.test(name))) || Object.values(id).some(mayBeReordered)
}

/** The limit of such `_id`s, because each is a comparison for every document that is read; the others are left for next time. */
const MOST = 100

/**
 * Matches documents by their `_id`s, including those that the driver reads as one of these (for the first {@link MOST} that may be
 * reordered). If there are any, all `_id`s that are documents are read.
 */
export function withIds(ids: readonly unknown[]): Filter<Document> {
  const named = { _id: { $in: ids as never[] } }
  const odd = ids.filter(mayBeReordered).slice(0, MOST)
  if (odd.length === 0) return named
  return { $or: [named, { _id: { $type: 'object' }, $expr: { $or: odd.map(isReadAs) } }] }
}

/** An expression: the document's `_id` differs from this one, but the driver reads it as this one. */
export const isReadAs = (id: unknown): Document => ({ $and: [{ $ne: ['$_id', literal(id)] }, hasFieldsOf('$_id', id)] })

function hasFieldsOf(found: unknown, wanted: unknown): Document {
  if (!mayBeReordered(wanted)) return { $eq: [found, literal(wanted)] }
  if (Array.isArray(wanted)) {
    const list = { $cond: [{ $isArray: [found] }, found, []] }
    const same = wanted.map((one, i) => hasFieldsOf({ $arrayElemAt: [list, i] }, one))
    return { $and: [{ $eq: [{ $size: list }, wanted.length] }, ...same] }
  }
  const fields = { $objectToArray: { $cond: [{ $eq: [{ $type: found }, 'object'] }, found, {}] } }
  const names = { $map: { input: fields, in: '$$this.k' } }
  const same = Object.entries(wanted as Document).map(([name, one]) =>
    hasFieldsOf({ $getField: { field: literal(name), input: found } }, one),
  )
  return { $and: [{ $setEquals: [names, literal(Object.keys(wanted as Document))] }, ...same] }
}

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
