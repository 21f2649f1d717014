import { createHash } from 'node:crypto'
import { BSON } from 'mongodb'
import { idKey } from '../../lock/index.js'

const HASH_LENGTH = 16
const LABEL_LENGTH = 63
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
const LOOKS_LIKE_OBJECT_ID = /^[0-9a-f]{24}$/i
const ENDS_LIKE_A_HASH = /-[0-9a-f]{16}$/

/** An id in readable form: a string as it is, an ObjectId as its hexadecimal digits, anything else as Extended JSON. */
export function idText(id: unknown): string {
  if (typeof id === 'string') return id
  if (id instanceof BSON.ObjectId) return id.toHexString()
  if (id === undefined) return 'undefined'
  return BSON.EJSON.stringify(id)
}

/**
 * The name of a Kubernetes object for this id: the prefix and the id if that is a legal label (lower case letters, digits and inner
 * hyphens, at most 63 characters with the ending), else a legal slug of its beginning and a hash. Distinct ids have distinct names.
 * @param prefix begins with a letter, as a Service's name must, and ends with a hyphen
 * @param endingLength the number of characters that the caller appends
 */
export function objectNameFor(prefix: string, id: unknown, endingLength = 0): string {
  const room = LABEL_LENGTH - prefix.length - endingLength
  return `${prefix}${distinctName(id, (text) => LABEL.test(text) && text.length <= room, room)}`
}

/**
 * A name for an object outside the database, derived from a document's `_id`: the id itself if that is a legal name, else a legal slug of
 * its beginning and a hash. Distinct ids have distinct names: unchanged names never end like a hash, changed ones always do.
 * @param maxLength of the name; 18 at least
 */
export function distinctName(id: unknown, isLegal: (text: string) => boolean, maxLength: number): string {
  const text = idText(id)
  // An ObjectId and a string of its digits are two ids.
  const isPlain = id instanceof BSON.ObjectId || (typeof id === 'string' && !LOOKS_LIKE_OBJECT_ID.test(id))
  if (isPlain && isLegal(text) && !ENDS_LIKE_A_HASH.test(text)) return text
  const hash = createHash('sha256').update(idKey(id)).digest('hex').slice(0, HASH_LENGTH)
  const slug = text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, maxLength - HASH_LENGTH - 1)
    .replace(/^-+|-+$/g, '')
  return slug === '' ? `x-${hash}` : `${slug}-${hash}`
}
