/** What decorators have noted under a symbol of theirs; nothing of an object that has something under every name, as mocks do. */
export function noted<T>(target: object, key: symbol): readonly T[] {
  const found = (target as Readonly<Record<symbol, unknown>>)[key]
  return Array.isArray(found) ? found : []
}
