/**
 * A copy of a document that shares nothing mutable with it. Plain objects and arrays are copied, dates too; BSON's own
 * values (ObjectId, Decimal128, ...) are taken as they are: nothing in them is meant to be changed.
 */
export function deepCopy<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map(deepCopy) as T
  if (value instanceof Date) return new Date(value.getTime()) as T
  if (Object.getPrototypeOf(value) !== Object.prototype) return value
  const copy = { ...value } as Record<string, unknown>
  for (const key in copy) {
    const own = copy[key]
    if (typeof own === 'object' && own !== null) setOwn(copy, key, deepCopy(own))
  }
  return copy as T
}

/** Sets fields of a document in place, or removes those that are undefined; a field may have any name that BSON allows. */
export function assignOwn(target: Record<string, unknown>, fields: Readonly<Record<string, unknown>>): void {
  for (const key of Object.keys(fields)) {
    if (fields[key] === undefined) delete target[key]
    else setOwn(target, key, fields[key])
  }
}

/** Sets a field. Assigned like any other, a field `__proto__` would become the object's prototype. */
function setOwn(target: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== '__proto__') target[key] = value
  else Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true })
}
