import { createHash } from 'node:crypto'
import { BSON } from 'mongodb'
import { idKey } from '../lock/index.js'

const HASH_LENGTH = 16
const LABEL_LENGTH = 63
const DATABASE_PREFIX = 'gw_'
/** MongoDB accepts fewer than 64 bytes. */
const DATABASE_LENGTH = 63
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
const LOOKS_LIKE_OBJECT_ID = /^[0-9a-f]{24}$/i
const ENDS_LIKE_A_HASH = /-[0-9a-f]{16}$/

/** Not a valid host name. */
export class InvalidHostName extends Error {
  override readonly name = 'InvalidHostName'
  constructor(readonly value: unknown) {
    super(
      `expected a host name such as 'shop.example.com' (labels of 1 to 63 letters, digits and inner hyphens, 253 characters at most), got ${JSON.stringify(value) ?? String(value)}`,
    )
  }
}

/** An id for people: a string as it is, an ObjectId as its hexadecimal digits, anything else as Extended JSON. */
export function idText(id: unknown): string {
  if (typeof id === 'string') return id
  if (id instanceof BSON.ObjectId) return id.toHexString()
  if (id === undefined) return 'undefined'
  return BSON.EJSON.stringify(id)
}

/**
 * The name of a gateway's own database: `gw_<id>` if the id, as a string, is legal there, else a legal slug of its beginning and a
 * hash. Distinct ids have distinct names, even ignoring case (MongoDB refuses names that differ only by case):
 * `a` -> `gw_a`, `A` -> `gw_a-<16 digits>`, the ObjectId 0123... -> `gw_0123...`, the string '0123...' -> `gw_0123...-<16 digits>`.
 */
export function databaseNameFor(gatewayId: unknown): string {
  const room = DATABASE_LENGTH - DATABASE_PREFIX.length
  const asItIs = /^[a-z0-9_-]+$/
  return `${DATABASE_PREFIX}${distinctName(gatewayId, (text) => asItIs.test(text) && text.length <= room, room)}`
}

/**
 * The host name of a gateway without a domain of its own: `<name>.<base domain>`, else one made from its id. A name that isn't
 * a valid label of a host name is turned into one, with a hash.
 */
export function hostNameFor(gatewayId: unknown, name: unknown, baseDomain: string): string {
  const isLabel = (text: string) => LABEL.test(text)
  const source = typeof name === 'string' && name.trim() !== '' ? name.trim().toLowerCase() : gatewayId
  const label = isNamed(source, name) && isLabel(source) ? source : distinctName(source, isLabel, LABEL_LENGTH)
  return `${label}.${baseDomain}`
}

const isNamed = (source: unknown, name: unknown): source is string =>
  typeof name === 'string' && typeof source === 'string'

/**
 * The name of an object in Kubernetes for this id: the prefix and the id if that is a legal label (lower case letters, digits and inner
 * hyphens, at most 63 characters with the ending), else a legal slug of its beginning and a hash. Distinct ids have distinct names.
 * @param prefix begins with a letter, as a Service's name must, and ends with a hyphen
 * @param endingLength how many characters the caller appends
 */
export function objectNameFor(prefix: string, id: unknown, endingLength = 0): string {
  const room = LABEL_LENGTH - prefix.length - endingLength
  return `${prefix}${distinctName(id, (text) => LABEL.test(text) && text.length <= room, room)}`
}

/** @returns the host name in lower case. @throws InvalidHostName */
export function parseHostName(value: unknown): string {
  const host = typeof value === 'string' ? value.trim().toLowerCase().replace(/\.$/, '') : ''
  if (host.length > 253 || !host.split('.').every((label) => LABEL.test(label))) throw new InvalidHostName(value)
  return host
}

/** Names that are kept never end like a hash, those that are changed always do: so no id can get another's name. */
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
