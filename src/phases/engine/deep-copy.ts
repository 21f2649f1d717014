/**
 * A copy of a document that shares nothing mutable with it. Plain objects and arrays are copied, dates too; BSON's own
 * values (ObjectId, Decimal128, ...) are taken as they are: nothing in them is meant to be changed.
 */
export function deepCopy<T>(value: T): T {
  if (Array.isArray(value)) return value.map(deepCopy) as T
  if (value instanceof Date) return new Date(value.getTime()) as T
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value
  const copy: Record<string, unknown> = {}
  for (const key in value) copy[key] = deepCopy(value[key])
  return copy as T
}
