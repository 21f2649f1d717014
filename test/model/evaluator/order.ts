import { Binary, Decimal128, Double, Int32, Long, MaxKey, MinKey, ObjectId, Timestamp } from 'mongodb'

/** A value of a document, as the driver reads it; `undefined` stands for a missing field. */
export type Value = unknown

export type Fields = Record<string, Value>

/** A type's place in the server's order over all types; a missing field sorts first but for MinKey. */
const RANKS: readonly (readonly [rank: number, name: string, is: (value: Value) => boolean])[] = [
  [-1, 'minKey', (value) => value instanceof MinKey],
  [0, 'missing', (value) => value === undefined],
  [1, 'null', (value) => value === null],
  [2, 'number', isNumber],
  [3, 'string', (value) => typeof value === 'string'],
  [5, 'array', Array.isArray],
  [6, 'binData', (value) => value instanceof Binary],
  [7, 'objectId', (value) => value instanceof ObjectId],
  [8, 'bool', (value) => typeof value === 'boolean'],
  [9, 'date', (value) => value instanceof Date],
  [10, 'timestamp', (value) => value instanceof Timestamp],
  [11, 'regex', (value) => value instanceof RegExp],
  [127, 'maxKey', (value) => value instanceof MaxKey],
]

const rankOf = (value: Value): readonly [number, string] => {
  for (const [rank, name, is] of RANKS) if (is(value)) return [rank, name]
  return [4, 'object']
}

/** The name of a value's type; all numbers share one, as no condition of the protocol tells them apart. */
export const typeOf = (value: Value): string => rankOf(value)[1]

export function isNumber(value: Value): boolean {
  if (typeof value === 'number' || typeof value === 'bigint') return true
  if (value instanceof Timestamp) return false // which is a Long in the driver
  return value instanceof Long || value instanceof Double || value instanceof Int32 || value instanceof Decimal128
}

export const isObject = (value: Value): value is Fields => typeOf(value) === 'object'

/** The server's order over all values: negative, 0 or positive. */
export function compare(a: Value, b: Value): number {
  const [rank, name] = rankOf(a)
  const [other] = rankOf(b)
  if (rank !== other) return rank - other
  switch (name) {
    case 'number':
      return compareNumbers(Number(a), Number(b))
    case 'string':
      return Buffer.compare(Buffer.from(a as string), Buffer.from(b as string))
    case 'bool':
      return Number(a) - Number(b)
    case 'date':
      return (a as Date).getTime() - (b as Date).getTime()
    case 'array':
      return compareLists(a as Value[], b as Value[])
    case 'object':
      return compareObjects(a as Fields, b as Fields)
    default:
      return String(a) < String(b) ? -1 : Number(String(a) > String(b))
  }
}

/** NaN sorts before all other numbers. */
function compareNumbers(a: number, b: number): number {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(b)) - Number(Number.isNaN(a))
  return a < b ? -1 : Number(a > b)
}

function compareLists(a: readonly Value[], b: readonly Value[]): number {
  for (let i = 0; i < Math.min(a.length, b.length); i += 1) {
    const difference = compare(a[i], b[i])
    if (difference !== 0) return difference
  }
  return a.length - b.length
}

function compareObjects(a: Fields, b: Fields): number {
  const [left, right] = [Object.entries(a), Object.entries(b)]
  for (let i = 0; i < Math.min(left.length, right.length); i += 1) {
    const [[key, value], [otherKey, otherValue]] = [left[i]!, right[i]!]
    const difference = rankOf(value)[0] - rankOf(otherValue)[0] || compare(key, otherKey) || compare(value, otherValue)
    if (difference !== 0) return difference
  }
  return left.length - right.length
}

export const isSame = (a: Value, b: Value): boolean => compare(a, b) === 0
