import { InvalidKey } from './errors.js'

/** The longest key in bytes: what all three stores index. */
export const LONGEST_KEY = 2_048

const WORD = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/

/** @throws InvalidKey unless it can be the first or second part of a key, which end at a colon */
export function requireWord(what: 'prefix' | 'environment', value: unknown): asserts value is string {
  if (typeof value === 'string' && WORD.test(value)) return
  throw new InvalidKey(
    `${what}: expected 1 to 64 letters, digits, '.', '_' or '-', of which the first is a letter or digit, got ${shown(value)}`,
  )
}

/**
 * The key `prefix:environment:part`. Two different triples have two different keys, because only the part may have colons.
 * @throws InvalidKey
 */
export function keyOf(head: string, part: unknown): string {
  if (typeof part !== 'string' || part === '')
    throw new InvalidKey(`expected the part of a key as text, got ${shown(part)}`)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: no store and no log takes them alike
  if (/[\u0000-\u001f\u007f]/.test(part) || !part.isWellFormed())
    throw new InvalidKey(
      `expected the part of a key without control characters and halves of surrogate pairs, got ${JSON.stringify(part.slice(0, 80))}; encode it, for example with encodeURIComponent`,
    )
  const key = head + part
  const bytes = Buffer.byteLength(key)
  if (bytes > LONGEST_KEY)
    throw new InvalidKey(
      `'${key.slice(0, 80)}...': expected a key of at most ${LONGEST_KEY} bytes, got ${bytes}; use a hash of what it stands for`,
    )
  return key
}

const shown = (value: unknown): string =>
  typeof value === 'string' ? JSON.stringify(value.slice(0, 80)) : `a ${value === null ? 'null' : typeof value}`
