import { BSON } from 'mongodb'
import { DamagedValue, InvalidValue, ValueTooLarge } from './errors.js'

/** A value as it is stored: text of JSON where that loses nothing (people can read it, and it costs a third), else BSON. */
export type Encoded = string | Uint8Array

/** The largest value in bytes, with room below MongoDB's limit of 16 MB and for Redis's text. */
export const LARGEST_VALUE = 8 * 1024 * 1024

export const sizeOf = (encoded: Encoded): number =>
  typeof encoded === 'string' ? Buffer.byteLength(encoded) : encoded.byteLength

/** MongoDB's own limit. */
const DEEPEST = 100

/** Classes of BSON that come back as they went in; those of another copy of the package are refused by the serializer. */
const KEPT = ['ObjectId', 'Decimal128']

/** Kinds of values: those that come back from a document as they went in, those that come back as they went in by {@link decode}, and others. */
const PLAIN = 1
const CODED = 2
const REFUSED = 3

interface Envelope {
  /** The value. */
  readonly v: unknown
  /** Present if there may be binary in it, which needs a walk when it is read. */
  readonly b?: true
}

/**
 * A value in the form that all stores keep.
 * @throws InvalidValue with the path of what wouldn't come back as it went in; ValueTooLarge
 */
export function encode(key: string, value: unknown): Encoded {
  const encoded = isJson(value, 0) ? JSON.stringify(value) : serialized(key, value)
  const bytes = sizeOf(encoded)
  if (bytes > LARGEST_VALUE) throw new ValueTooLarge(key, bytes, LARGEST_VALUE)
  return encoded
}

function serialized(key: string, value: unknown): Uint8Array {
  const kind = kindOf(value, 0)
  if (kind === REFUSED) {
    const { path, problem } = lossIn(value, CODED)
    throw new InvalidValue(key, path, problem)
  }
  const envelope: Envelope = kind === CODED ? { v: value, b: true } : { v: value }
  try {
    return BSON.serialize(envelope)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new InvalidValue(key, 'value', `expected what BSON can hold, got: ${why}`)
  }
}

/** The place in a value that wouldn't come back as it went in, such as `value.items[3].price`, and the problem with it. */
export interface Loss {
  readonly path: string
  readonly problem: string
}

/** What would be lost of a value that is stored as it is, as a field of a document; undefined: nothing. */
export const lossInDocument = (value: unknown): Loss | undefined =>
  kindOf(value, 0) === PLAIN ? undefined : lossIn(value, PLAIN)

/**
 * The value that this stands for: a new copy each time.
 * @throws DamagedValue
 */
export function decode(key: string, encoded: Encoded): unknown {
  try {
    if (typeof encoded === 'string') return JSON.parse(encoded)
    const { v, b } = BSON.deserialize(encoded, { useBigInt64: true }) as Envelope
    return b ? withBuffers(v) : v
  } catch (error) {
    throw new DamagedValue(key, error)
  }
}

/** True if JSON loses nothing of it. Asked for each write, so it does little: 1.5 us for 40 fields. */
function isJson(value: unknown, depth: number): boolean {
  switch (typeof value) {
    case 'string':
      return value.isWellFormed()
    case 'number':
      return Number.isFinite(value) && !Object.is(value, -0)
    case 'boolean':
      return true
    case 'object':
      return value === null || (depth <= DEEPEST && areJson(value, depth + 1))
    default:
      return false
  }
}

function areJson(value: object, depth: number): boolean {
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i += 1) if (!isJson(value[i], depth)) return false
    return true
  }
  if (!isPlain(value) || Object.getOwnPropertySymbols(value).length > 0) return false
  // Not Object.keys, whose lists are garbage by the next line: a tenth of a write's processor time for 40 fields. Inherited ones can only make it BSON.
  for (const name in value)
    if (!name.isWellFormed() || !isJson((value as Record<string, unknown>)[name], depth)) return false
  return true
}

/** The kind of a value that JSON can't keep. */
function kindOf(value: unknown, depth: number): number {
  switch (typeof value) {
    case 'boolean':
    case 'number':
      return PLAIN
    case 'string':
      return value.isWellFormed() ? PLAIN : REFUSED
    case 'bigint':
      return BigInt.asIntN(64, value) === value ? CODED : REFUSED
    case 'object':
      return value === null ? PLAIN : kindOfObject(value, depth)
    default:
      return REFUSED
  }
}

function kindOfObject(value: object, depth: number): number {
  if (depth > DEEPEST) return REFUSED
  const isList = Array.isArray(value)
  if (!isList && !isPlain(value)) return kindOfInstance(value)
  if (!isList && ('_bsontype' in value || refusedFields(value) !== undefined)) return REFUSED
  let kind = PLAIN
  // With the gaps of a list, which a list of its entries lacks.
  for (const field of isList ? Array.from(value) : Object.values(value)) {
    kind = Math.max(kind, kindOf(field, depth + 1))
    if (kind === REFUSED) break
  }
  return kind
}

function kindOfInstance(value: object): number {
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? REFUSED : PLAIN
  if (value instanceof Uint8Array || value instanceof BSON.UUID) return CODED
  return KEPT.includes(String((value as { _bsontype?: unknown })._bsontype)) ? PLAIN : REFUSED
}

/** The problem with the names of an object's fields; undefined if there is no problem. */
function refusedFields(value: object): string | undefined {
  if ('$ref' in value && '$id' in value)
    return 'expected an object without both $ref and $id, which BSON reads as a reference; rename one'
  if (Object.getOwnPropertySymbols(value).length > 0)
    return 'expected an object with names for fields, got a symbol; it would be lost'
  for (const name of Object.keys(value))
    if (name.includes('\0') || !name.isWellFormed())
      return `expected names of fields without \\0 and halves of surrogate pairs, got ${JSON.stringify(name)}`
  return undefined
}

/** Finds the first place in a value whose kind is beyond `most`. */
function lossIn(value: unknown, most: number, path = 'value', depth = 0): Loss {
  if (depth > DEEPEST)
    return { path: 'value', problem: `expected at most ${DEEPEST} levels, got more, or an object that contains itself` }
  const problem = problemOf(value, most)
  if (problem !== undefined) return { path, problem }
  for (const [name, field] of Object.entries(Array.isArray(value) ? Array.from(value) : (value as object))) {
    if (kindOf(field, depth + 1) <= most) continue
    const isName = /^[A-Za-z_$][\w$]*$/.test(name)
    const step = Array.isArray(value) ? `[${name}]` : isName ? `.${name}` : `[${JSON.stringify(name)}]`
    return lossIn(field, most, path + step, depth + 1)
  }
  return { path, problem: 'expected a value that stays as it is while it is stored' }
}

/** The problem with the value itself; undefined if the problem is inside it. */
function problemOf(value: unknown, most: number): string | undefined {
  if (typeof value === 'string') return 'expected text, got half of a surrogate pair in it; use toWellFormed()'
  if (typeof value === 'bigint')
    return `expected ${most === CODED ? 'a bigint of 64 bits' : 'a number'}, got the bigint ${value}; store it as text`
  if (typeof value !== 'object' || value === null)
    return `expected a value that can be stored, got ${typeof value}; leave it out, or use null`
  if (value instanceof Date) return 'expected a date, got an invalid one'
  if (Array.isArray(value)) return undefined
  const type = (value as { _bsontype?: unknown })._bsontype
  if (isPlain(value) && type === undefined) return refusedFields(value)
  const name = typeof type === 'string' ? type : (value.constructor?.name ?? 'object')
  const kept = most === CODED ? 'a Date, a Uint8Array or an ObjectId' : 'a Date or an ObjectId'
  return `expected a plain object, an array, ${kept}, got a ${name}; it would come back as something else`
}

function isPlain(value: object): boolean {
  const prototype = Object.getPrototypeOf(value)
  // Of any realm: the prototype of a plain object is the one that has none itself.
  return prototype === null || prototype === Object.prototype || Object.getPrototypeOf(prototype) === null
}

/** Bytes come as Buffers; UUIDs stay UUIDs. */
function withBuffers(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof BSON.Binary)
    return value.sub_type === BSON.Binary.SUBTYPE_UUID ? value : Buffer.from(value.value())
  if (Array.isArray(value)) return value.map(withBuffers)
  if (!isPlain(value)) return value
  for (const [name, field] of Object.entries(value)) {
    const read = withBuffers(field)
    if (read !== field)
      Object.defineProperty(value, name, { value: read, enumerable: true, writable: true, configurable: true })
  }
  return value
}
