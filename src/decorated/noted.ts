/** The notes of decorators under their symbol; none for an object that has a value under every name, as mocks do. */
export function noted<T>(target: unknown, key: symbol): readonly T[] {
  const found = (target as Readonly<Record<symbol, unknown>> | null | undefined)?.[key]
  return Array.isArray(found) ? found : []
}

/** Adds a note to the class itself, besides the notes it inherits. */
export function note<T>(target: object, key: symbol, value: T): void {
  Object.defineProperty(target, key, { value: [...noted<T>(target, key), value], configurable: true })
}
