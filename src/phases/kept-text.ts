/** The most characters that are kept, on the document and in the log, of what handlers say. A longer name of a step is refused, all else is cut. */
export const MOST_CHARACTERS = {
  stepName: 200,
  /** Of a wait, a park, an unavailable outside world, a deadline. */
  reason: 1_000,
  errorName: 200,
  errorMessage: 2_000,
  errorStack: 4_000,
} as const

export const cut = (text: string, kind: keyof typeof MOST_CHARACTERS): string => text.slice(0, MOST_CHARACTERS[kind])

/** Anything as a text: itself, or its JSON, or its type. Never throws. */
export function textOf(value: unknown, fallback = 'undefined'): string {
  if (typeof value === 'string') return value
  const text = () => (typeof value === 'object' ? Object.prototype.toString.call(value) : String(value))
  return value === undefined ? fallback : (tried(() => JSON.stringify(value)) ?? tried(text) ?? fallback)
}

/** What came instead of what was expected, for a message: its first 200 characters. */
export const shown = (value: unknown): string =>
  (typeof value === 'string' ? JSON.stringify(value) : textOf(value)).slice(0, 200)

/** Properties may be getters, and objects proxies, of a handler's author. */
export function tried<T>(get: () => T): T | undefined {
  try {
    return get()
  } catch {
    return undefined
  }
}
