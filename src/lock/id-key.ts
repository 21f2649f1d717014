import { BSON } from 'mongodb'

/** An `_id` of any BSON type as the key of a Map: two ids that the server holds for the same have the same key. */
export function idKey(id: unknown): string {
  if (typeof id === 'string') return `s${id}`
  if (id instanceof BSON.ObjectId) return `o${id.toHexString()}`
  if (typeof id === 'number') return `n${id === 0 ? 0 : id}`
  if (id instanceof BSON.Long || id instanceof BSON.Int32 || id instanceof BSON.Double) return `n${id.toString()}`
  return `e${BSON.EJSON.stringify({ id }, { relaxed: false })}`
}
