import { createHash } from 'node:crypto'
import { BSON } from 'mongodb'

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
