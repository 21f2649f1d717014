/** The most characters of a handler's texts that are kept, on the document and in the log. A longer step name is refused, all else is cut. */
export const MOST_CHARACTERS = {
  stepName: 200,
  /** The reason of a wait, a park, an unavailable outside world, a deadline. */
  reason: 1_000,
  errorName: 200,
  errorMessage: 2_000,
  errorStack: 4_000,
  causeMessage: 500,
} as const

export const cut = (text: string, kind: keyof typeof MOST_CHARACTERS): string => text.slice(0, MOST_CHARACTERS[kind])

/** The most levels of a value. A deeper one has no JSON here: it contains itself, or can't be stored either. */
const MOST_LEVELS = 100

/**
 * Turns anything into a string: itself, the beginning of its JSON, an error's name and message, or its type. Never throws, and takes no longer for
 * large values.
 */
export function textOf(value: unknown, fallback = 'undefined'): string {
  if (typeof value === 'string') return value
  if (typeof value === 'bigint' && BigInt.asIntN(64, value) !== value) return 'a bigint of more than 64 bits'
  const error = tried(() => (value instanceof Error ? errorText(value) : undefined))
  if (error !== undefined) return error
  const text = () => (typeof value === 'object' ? Object.prototype.toString.call(value) : String(value))
  return value === undefined ? fallback : (tried(() => JSON.stringify(beginningOf(value))) ?? tried(text) ?? fallback)
}

/** The text of an error, because its JSON is only `{}`. */
const errorText = ({ name, message }: Error): string =>
  `${cut(String(name), 'errorName')}: ${cut(String(message), 'errorMessage')}`

/** The part of a value whose JSON is kept: a handler may have given 20 MB, and converting all of it would block the event loop. */
function beginningOf(value: unknown): unknown {
  let left: number = MOST_CHARACTERS.errorStack
  const begun = (part: unknown, level: number): unknown => {
    left -= 1
    if (typeof part === 'string') {
      const text = part.slice(0, Math.max(0, left))
      left -= text.length
      return text
    }
    if (typeof part !== 'object' || part === null) return part
    if (level > MOST_LEVELS) throw new RangeError(`deeper than ${MOST_LEVELS} levels`)
    if (ArrayBuffer.isView(part)) return Object.prototype.toString.call(part)
    if (part instanceof Error) return begun(errorText(part), level)
    if ('toJSON' in part && typeof part.toJSON === 'function') return begun(part.toJSON(), level + 1)
    if (Array.isArray(part)) {
      const items: unknown[] = []
      for (let i = 0; i < part.length && left > 0; i += 1) items.push(begun(part[i], level + 1))
      return items
    }
    const fields: Record<string, unknown> = Object.create(null)
    for (const key of Object.keys(part)) {
      if (left <= 0) break
      left -= key.length
      fields[key.slice(0, MOST_CHARACTERS.reason)] = begun((part as Record<string, unknown>)[key], level + 1)
    }
    return fields
  }
  return begun(value, 0)
}

/** The value that came instead of the expected one, for a message: its first 200 characters. */
export const shown = (value: unknown): string =>
  (typeof value === 'string' ? JSON.stringify(value.slice(0, 200)) : textOf(value)).slice(0, 200)

/** Reads something that may throw: properties may be getters, and objects proxies, of a handler's author. */
export function tried<T>(get: () => T): T | undefined {
  try {
    return get()
  } catch {
    return undefined
  }
}
