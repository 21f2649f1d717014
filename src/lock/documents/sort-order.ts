import { BSON, type Document, type Filter } from 'mongodb'

/**
 * The types of BSON in the server's sort order, with their numbers. A comparison in a filter only finds values of the same type. Without arrays: in an
 * index their elements count.
 */
const TYPES = Object.entries({
  minKey: [0xff],
  null: [0x0a],
  'double int long decimal': [0x01, 0x10, 0x12, 0x13],
  'string symbol': [0x02, 0x0e],
  object: [0x03],
  binData: [0x05],
  objectId: [0x07],
  bool: [0x08],
  date: [0x09],
  timestamp: [0x11],
  regex: [0x0b],
  dbPointer: [0x0c],
  javascript: [0x0d],
  javascriptWithScope: [0x0f],
  maxKey: [0x7f],
})
const NULL = TYPES.findIndex(([name]) => name === 'null')

/** Ascending or descending. */
export type Direction = 1 | -1

/**
 * Filters for the values of a field that come after one in the server's sort order, whatever their types; each is one range of an index, and they are
 * in that order. A missing field counts as null. After an array come none, because its elements have places of their own; after a date that JavaScript
 * can't represent, values of later types.
 * @param direction -1: those that come before it, in descending order
 */
export function valuesAfter(field: string, value: unknown, direction: Direction): Filter<Document>[] {
  const number = value == null ? 0x0a : BSON.serialize({ value })[4]!
  const at = TYPES.findIndex(([, numbers]) => numbers.includes(number))
  if (at === -1) return []
  const ofType = (types: typeof TYPES) =>
    types.length > 0 ? [{ [field]: { $type: types.flatMap(([names]) => names.split(' ')) } } as Filter<Document>] : []
  const same = value == null ? [] : [ofSameType(field, value, direction)]
  if (direction === 1) return [...same, ...ofType(TYPES.slice(at + 1))]
  const none = at > NULL ? [{ [field]: null }] : []
  return [
    ...same,
    ...ofType(TYPES.slice(NULL + 1, Math.max(at, NULL + 1))),
    ...none,
    ...(at > 0 ? ofType(TYPES.slice(0, 1)) : []),
  ]
}

function ofSameType(field: string, value: unknown, direction: Direction): Filter<Document> {
  if (value instanceof Date && Number.isNaN(value.getTime())) return { [field]: { $in: [] } }
  // The first of the numbers, to which nothing compares.
  if (typeof value === 'number' && Number.isNaN(value))
    return { [field]: direction === 1 ? { $type: 'number', $ne: value } : { $in: [] } }
  if (direction === 1) return { [field]: { $gt: value } }
  return typeof value === 'number'
    ? { $or: [{ [field]: { $lt: value } }, { [field]: Number.NaN }] }
    : { [field]: { $lt: value } }
}

/** The documents that come after one in the order of `_id`, of whatever types they are. */
export const afterId = (id: unknown, direction: Direction = 1): Filter<Document> => {
  const later = valuesAfter('_id', id, direction)
  return later.length > 0 ? { $or: later } : { _id: { $in: [] } }
}
