import {
  BSON,
  type Collection,
  type Document,
  type Filter,
  type FindOptions,
  type MongoError,
  MongoServerError,
} from 'mongodb'
import { isA, isServerError, ownersNumbers } from '../../database/index.js'
import { CLAIM_INDEX } from '../terms/terms.js'
import { withParts } from './values.js'

/** A majority read: what only a deposed primary has is undone, and a lease by such a lockTimeout would be stolen. */
export const COMMITTED = { readConcern: { level: 'majority' } } as const

/** True if it is the database's fault, not a document's or this program's. */
export const isDatabaseError = (error: unknown): error is MongoError => isA(error, 'MongoError')

/** A document that the driver can't turn into JavaScript: a regular expression of another dialect, say. */
export interface Unreadable {
  readonly id: unknown
  /** Its holder's token, if that is a string. */
  readonly lockedBy: string
  readonly error: Error
}

export interface ReadEach {
  readonly documents: Document[]
  readonly unreadable: readonly Unreadable[]
}

/** Options for reads of `_id`s and of Phaselock's own fields: a regular expression stays as it is stored, whatever its dialect. */
export const AS_IT_STANDS = { bsonRegExp: true } as const

/** Reads with the driver's own options; if a document makes that fail, with regular expressions as they are stored. */
export async function asReadable<T>(read: (how: { bsonRegExp?: true }) => Promise<T>): Promise<T> {
  try {
    return await read({})
  } catch (error) {
    if (isDatabaseError(error)) throw error
    return read(AS_IT_STANDS)
  }
}

/** Reads one document as its owner's code gets it; null: it doesn't exist. */
export async function readForOwner(
  collection: Collection,
  id: unknown,
  progress: string,
  options: FindOptions = {},
): Promise<Document | null> {
  const reading = { ...options, ...ownersReading(collection) }
  const found = await asReadable((how) => collection.findOne({ _id: id as never }, { ...reading, ...how }))
  return found && withOwnNumbers(collection, progress, found)
}

/** The options that {@link readOwnFields} passes to its read. */
export interface OwnReading {
  readonly bsonRegExp: true
  readonly raw?: true
}

/**
 * Reads `_id`s and Phaselock's own fields, whatever they hold. A value that the driver can't read (binary of the old subtype 2 with
 * a wrong length) comes as its raw bytes ({@link Unread}), a type that no such field may have; all others are unaffected. A
 * document whose very `_id` can't be read is left out: no command can name it.
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

/**
 * The phases that a collection's documents are in, whatever their type: one key of the claim index for each. If that index ever held an array, it reads
 * each document.
 */
export async function phasesIn(
  collection: Collection,
  options: { readonly maxTimeMS?: number } = {},
): Promise<unknown[]> {
  const reading = { ...options, ...AS_IT_STANDS, enableUtf8Validation: false }
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
      const value = bytes.subarray(offset, offset + length)
      const inner = type === OBJECT || type === ARRAY ? fieldByField(value) : new Unread(value)
      document[name] = type === ARRAY ? Object.values(inner) : inner
    }
  }
  return document
}

/**
 * Finds documents for their owner's code. If the driver fails to read one, it is separated from the others, which are read again
 * without it; only then does that take two more commands.
 * @throws what the database throws, and what the driver throws if its options let it read no document at all
 */
export async function readEach(
  collection: Collection,
  filter: Filter<Document>,
  given: FindOptions,
  progress: string,
): Promise<ReadEach> {
  const options = { ...given, ...ownersReading(collection) }
  const find = async (which: Filter<Document>) =>
    (await collection.find(which, options).toArray()).map((one) => withOwnNumbers(collection, progress, one))
  try {
    return { documents: await find(filter), unreadable: [] }
  } catch (error) {
    if (isDatabaseError(error)) throw error
  }
  const reading = { ...collection.bsonOptions, ...ownersReading(collection), validation: { utf8: false } }
  const read = (bytes: Uint8Array) => BSON.deserialize(bytes, reading)
  read(BSON.serialize({})) // throws if the options contradict each other, which is no document's fault
  const found = (await collection.find(filter, { ...options, raw: true }).toArray()) as unknown as Uint8Array[]
  const unreadable: Unreadable[] = []
  for (const bytes of found) {
    try {
      read(bytes)
    } catch (error) {
      const { _id: id, lockedBy } = fieldByField(bytes)
      unreadable.push({ id, lockedBy: String(lockedBy), error: error as Error })
    }
  }
  const others = { $and: [filter, { _id: { $nin: unreadable.map(({ id }) => id) as never[] } }] }
  return { documents: await find(others), unreadable }
}

/** The element as a document of its own. */
function elementOf(element: Uint8Array): Document {
  const document = new Uint8Array(element.length + 5)
  new DataView(document.buffer).setInt32(0, document.length, true)
  document.set(element, 4)
  return BSON.deserialize(document, { ...AS_IT_STANDS, validation: { utf8: false } })
}

/*
 * A document for an owner's code, such as a handler, is read as the owner's client or database says: an int64 as a bigint, say.
 * Phaselock's own fields in it are numbers all the same.
 */

/** Options for reads of documents for their owner's code. */
export const ownersReading = (collection: Collection) => ownersNumbers(collection) ?? {}

/** A document that was read with {@link ownersReading}, with Phaselock's numbers as numbers. */
export function withOwnNumbers<T extends Document>(collection: Collection, progress: string, document: T): T {
  if (!ownersNumbers(collection)) return document
  const ours = ['fence', progress].filter((field) => field in document)
  return { ...document, ...Object.fromEntries(ours.map((field) => [field, withParts(document[field], asNumber)])) }
}

/** Converts as the driver promotes them: an int64 that no number can be stays a Long. */
function asNumber(value: unknown): unknown {
  if (value instanceof BSON.Int32 || value instanceof BSON.Double) return value.value
  const long = typeof value === 'bigint' ? BSON.Long.fromBigInt(value) : value
  if (!(long instanceof BSON.Long)) return value
  return Number.isSafeInteger(long.toNumber()) ? long.toNumber() : long
}

/** The fields of a document that {@link shownFields} looks at, as a projection. */
export const shownProjection = (progress: string): Document => ({
  ...{ phase: 1, state: 1, lockedAt: 1, lockedBy: 1 },
  ...{ [`${progress}.step`]: 1, [`${progress}.attempts`]: 1 },
})

/** The state of a document, for people who ask what was done to it: fields that it doesn't have are left out. */
export function shownFields(document: Document, progress: string): Document {
  const { phase, state, lockedAt, lockedBy } = document
  const { step, attempts } = (document[progress] ?? {}) as Document
  const all = { phase, state, lockedAt, lockedBy, step, attempts }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value != null))
}

/** Takes the claim index's place while that is rebuilt: it has the same order, so a look reads the same keys. */
export const STAND_IN_INDEX = { ...CLAIM_INDEX, _id: 1 } as const

export type ClaimIndex = typeof CLAIM_INDEX | typeof STAND_IN_INDEX

/**
 * The claim index for each value of a field. The field comes first, so that the planner never takes it for a look at a phase, which
 * names no index.
 */
export const orderIndex = (field: string) => ({ [field]: 1, phase: 1, lockedAt: 1, updatedAt: 1 }) as const
export type OrderIndex = ReturnType<typeof orderIndex>

const BAD_VALUE = 2
const QUERY_PLAN_KILLED = 175

/** A query names an index of the protocol that isn't there. That is an error, never a scan: nothing is read until it is back. */
export class MissingIndex extends MongoServerError {
  constructor(collection: string, key: Document) {
    const what = `${collection} has no index ${JSON.stringify(key)}, and nothing is read from it without one`
    const remedy = "to create it, run phaselock check --repair, or restart a replica with indexes: 'create'"
    super({ message: `${what}; ${remedy}`, code: BAD_VALUE })
  }

  override get name(): string {
    return 'MissingIndex'
  }
}

/**
 * Runs a query that names an index.
 * @throws MissingIndex if it isn't there
 */
export async function onIndex<K extends Document, T>(
  { collectionName }: Pick<Collection, 'collectionName'>,
  key: K,
  use: (index: K) => Promise<T>,
): Promise<T> {
  try {
    return await use(key)
  } catch (error) {
    throw namesMissingIndex(error) ? new MissingIndex(collectionName, key) : error
  }
}

/**
 * Runs a query that names the claim index. If the server says that the index isn't there, or was dropped during the query, tries
 * its stand-in, and then the index itself once more, which may be back.
 * @throws the last error: MissingIndex if neither is there
 */
export async function onClaimIndex<T>(
  collection: Pick<Collection, 'collectionName'>,
  use: (index: ClaimIndex) => Promise<T>,
): Promise<T> {
  for (const index of [CLAIM_INDEX, STAND_IN_INDEX]) {
    try {
      return await use(index)
    } catch (error) {
      const wasKilled = isServerError(error, QUERY_PLAN_KILLED)
      if (!wasKilled && !namesMissingIndex(error)) throw error
    }
  }
  return onIndex(collection, CLAIM_INDEX, use)
}

/** True if a query was refused because the index that it names isn't there; one that is already reading the index is killed instead. */
const namesMissingIndex = (error: unknown): boolean =>
  isServerError(error, BAD_VALUE) && /\bhint\b/i.test(error.message)
