import { BSON, type Collection, type Document, type Filter, type FindOptions } from 'mongodb'
import { isDatabaseError } from './write-error.js'

/** A document that the driver can't turn into JavaScript: a regular expression of another dialect, say. */
export interface Unreadable {
  readonly id: unknown
  /** Its holder's token, where a text stands there. */
  readonly lockedBy: string
  readonly error: Error
}

export interface ReadEach {
  readonly documents: Document[]
  readonly unreadable: readonly Unreadable[]
}

/** Options for reads of `_id`s and of Phaselock's own fields: a regular expression is taken as it stands, whatever its dialect. */
export const AS_IT_STANDS = { bsonRegExp: true } as const

/** Reads with the driver's own options; where that fails over a document, with regular expressions as they stand. */
export async function asReadable<T>(read: (how: { bsonRegExp?: true }) => Promise<T>): Promise<T> {
  try {
    return await read({})
  } catch (error) {
    if (isDatabaseError(error)) throw error
    return read(AS_IT_STANDS)
  }
}

/** How {@link readOwnFields} wants its read to be done. */
export interface OwnReading {
  readonly bsonRegExp: true
  readonly raw?: true
}

/**
 * Reads `_id`s and fields of Phaselock's own, whatever stands there. Where the driver fails over a value (binary of the old subtype 2
 * with a wrong length), only that one is not as it stands: it comes as the bytes that stand there ({@link Unread}), of a type that no
 * such field may have. A document whose very `_id` can't be read is left out: nobody can name it.
 */
export async function readOwnFields(read: (how: OwnReading) => Promise<Document[]>): Promise<Document[]> {
  try {
    return await read(AS_IT_STANDS)
  } catch (error) {
    if (isDatabaseError(error)) throw error
  }
  const found = (await read({ ...AS_IT_STANDS, raw: true })) as unknown as Uint8Array[]
  return found.map(fieldByField).filter(({ _id }) => !(_id instanceof Unread))
}

/** The phases that documents of a collection are in, whatever stands there: one key of the claim index for each. */
export async function phasesIn(collection: Collection): Promise<unknown[]> {
  const reading = { ...AS_IT_STANDS, enableUtf8Validation: false }
  try {
    return await collection.distinct('phase', {}, reading)
  } catch (error) {
    if (isDatabaseError(error)) throw error
    return [new Unread(), ...(await collection.distinct('phase', { phase: { $type: 'string' } }, reading))]
  }
}

/** A value that the driver can't read. */
class Unread extends BSON.Binary {}
const [OBJECT, ARRAY] = [3, 4]

function fieldByField(bytes: Uint8Array): Document {
  const document: Document = {}
  for (const [type, nameOffset, nameLength, offset, length] of BSON.onDemand.parseToElements(bytes)) {
    const name = Buffer.from(bytes.subarray(nameOffset, nameOffset + nameLength)).toString()
    try {
      document[name] = elementOf(bytes.subarray(nameOffset - 1, offset + length))[name]
    } catch {
      const inner =
        type === OBJECT || type === ARRAY
          ? fieldByField(bytes.subarray(offset, offset + length))
          : new Unread(bytes.subarray(offset, offset + length))
      document[name] = type === ARRAY ? Object.values(inner) : inner
    }
  }
  return document
}

const ALL_READ: readonly Unreadable[] = []

/**
 * Finds documents. Where the driver fails over one, that is told apart from the others, which are read again without it: two
 * commands more, only then.
 * @throws what the database throws; and what the driver throws where its options let it read no document at all
 */
export async function readEach(
  collection: Collection,
  filter: Filter<Document>,
  options: FindOptions,
): Promise<ReadEach> {
  try {
    return { documents: await collection.find(filter, options).toArray(), unreadable: ALL_READ }
  } catch (error) {
    if (isDatabaseError(error)) throw error
  }
  const reading = { ...collection.bsonOptions, validation: { utf8: false } }
  const read = (bytes: Uint8Array) => BSON.deserialize(bytes, reading)
  read(BSON.serialize({})) // options that contradict each other are no document's fault
  const found = (await collection.find(filter, { ...options, raw: true }).toArray()) as unknown as Uint8Array[]
  const unreadable: Unreadable[] = []
  for (const bytes of found) {
    try {
      read(bytes)
    } catch (error) {
      const [id, lockedBy] = ['_id', 'lockedBy'].map((field) => fieldOf(bytes, field))
      unreadable.push({ id, lockedBy: String(lockedBy), error: error as Error })
    }
  }
  const others = { $and: [filter, { _id: { $nin: unreadable.map(({ id }) => id) as never[] } }] }
  return { documents: await collection.find(others, options).toArray(), unreadable }
}

/** One field of a stored document, without a look at the others. */
function fieldOf(bytes: Uint8Array, field: string): unknown {
  const name = new TextEncoder().encode(field)
  for (const [, nameOffset, nameLength, offset, length] of BSON.onDemand.parseToElements(bytes)) {
    if (Buffer.compare(bytes.subarray(nameOffset, nameOffset + nameLength), name) !== 0) continue
    return elementOf(bytes.subarray(nameOffset - 1, offset + length))[field]
  }
  return undefined
}

/** A document of one element only. */
function elementOf(element: Uint8Array): Document {
  const document = new Uint8Array(element.length + 5)
  new DataView(document.buffer).setInt32(0, document.length, true)
  document.set(element, 4)
  return BSON.deserialize(document, { ...AS_IT_STANDS, validation: { utf8: false } })
}
