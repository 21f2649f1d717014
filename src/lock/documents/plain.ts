/** True if a value is an object without a class, as the driver reads a document. */
export const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

/** Copies a value. Each part that is neither an array nor a plain object becomes the result of `part`. */
export function withParts(value: unknown, part: (one: unknown) => unknown): unknown {
  if (Array.isArray(value)) return value.map((one) => withParts(one, part))
  if (!isPlain(value)) return part(value)
  // Not assigned: a field `__proto__` would become the object's prototype.
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, withParts(inner, part)]))
}
