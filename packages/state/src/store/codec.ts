import { BSON } from 'mongodb'
import { DamagedValue, InvalidValue, ValueTooLarge } from './errors.js'

/** The largest value in bytes, with room below MongoDB's limit of 16 MB and for Redis's text. */
export const LARGEST_VALUE = 8 * 1024 * 1024

/** Nobody nests by hand what is deeper; MongoDB's own limit is 100. */
const DEEPEST = 100

/** Classes of BSON that come back as they went in; those of another copy of the package are refused by the serializer. */
const KEPT = ['ObjectId', 'Decimal128']

interface Envelope {
  /** The value. */
  readonly v: unknown
  /** Present if there is binary in it, which needs a walk when it is read. */
  readonly b?: true
}

/**
 * A value as bytes (BSON), the same for all stores.
 * @throws InvalidValue with the path of what wouldn't come back as it went in; ValueTooLarge
 */
export function encode(key: string, value: unknown): Uint8Array {
  const found = { binary: false }
  check(value, { key, path: 'value', depth: 0, found })
  const envelope: Envelope = found.binary ? { v: value, b: true } : { v: value }
  const bytes = serialized(key, envelope)
  if (bytes.byteLength > LARGEST_VALUE) throw new ValueTooLarge(key, bytes.byteLength, LARGEST_VALUE)
  return bytes
}

function serialized(key: string, envelope: Envelope): Uint8Array {
  try {
    return BSON.serialize(envelope)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new InvalidValue(key, 'value', `expected what BSON can hold, got: ${why}`)
  }
}

/**
 * The value that these bytes stand for: a new copy each time.
 * @throws DamagedValue
 */
export function decode(key: string, bytes: Uint8Array): unknown {
  try {
    const { v, b } = BSON.deserialize(bytes, { useBigInt64: true }) as Envelope
    return b ? withBuffers(v) : v
  } catch (error) {
    throw new DamagedValue(key, error)
  }
}

interface Place {
  readonly key: string
  readonly path: string
  readonly depth: number
  readonly found: { binary: boolean }
}

function check(value: unknown, place: Place): void {
  switch (typeof value) {
    case 'boolean':
    case 'number':
      return
    case 'string':
      if (value.isWellFormed()) return
      throw refused(place, 'expected text, got half of a surrogate pair in it; use toWellFormed() or a Buffer')
    case 'bigint':
      if (BigInt.asIntN(64, value) === value) return
      throw refused(place, `expected a bigint of 64 bits, got ${value}; store it as text`)
    case 'object':
      if (value !== null) checkObject(value, place)
      return
    default:
      throw refused(place, `expected a value that can be stored, got ${typeof value}; leave it out, or use null`)
  }
}

function checkObject(value: object, place: Place): void {
  if (place.depth > DEEPEST)
    throw refused(
      { ...place, path: 'value' },
      `expected at most ${DEEPEST} levels, got more, or an object that contains itself`,
    )
  const type = (value as { _bsontype?: unknown })._bsontype
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw refused(place, 'expected a date, got an invalid one')
  } else if (value instanceof Uint8Array || value instanceof BSON.UUID) {
    place.found.binary = true
  } else if (typeof type === 'string' && KEPT.includes(type)) {
    return
  } else if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i += 1) check(value[i], inside(place, `[${i}]`))
  } else if (isPlain(value)) {
    checkFields(value, place)
  } else {
    const name = typeof type === 'string' ? type : (value.constructor?.name ?? 'object')
    throw refused(
      place,
      `expected a plain object, an array, a Date, a Uint8Array or an ObjectId, got a ${name}; it would come back as something else`,
    )
  }
}

function checkFields(value: object, place: Place): void {
  if ('$ref' in value && '$id' in value)
    throw refused(place, 'expected an object without both $ref and $id, which BSON reads as a reference; rename one')
  if (Object.getOwnPropertySymbols(value).length > 0)
    throw refused(place, 'expected an object with names for fields, got a symbol; it would be lost')
  for (const [name, field] of Object.entries(value)) {
    if (name.includes('\0') || !name.isWellFormed())
      throw refused(
        place,
        `expected names of fields without \\0 and halves of surrogate pairs, got ${JSON.stringify(name)}`,
      )
    check(field, inside(place, /^[A-Za-z_$][\w$]*$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`))
  }
}

const inside = ({ key, path, depth, found }: Place, step: string): Place => ({
  key,
  path: path + step,
  depth: depth + 1,
  found,
})

const refused = ({ key, path }: Place, problem: string): InvalidValue => new InvalidValue(key, path, problem)

function isPlain(value: object): boolean {
  const prototype = Object.getPrototypeOf(value)
  // Of any realm: the prototype of a plain object is the one that has none itself.
  return prototype === null || Object.getPrototypeOf(prototype) === null
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
