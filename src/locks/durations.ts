import { durationMs, InvalidDuration } from '../time/index.js'

/**
 * A length of time: ISO-8601 (`'PT50S'`, `'P1DT2H'`) or with a unit (`'50s'`, `'500ms'`). Strings that Java's ShedLock accepts mean the
 * same here, in upper or lower case and with a sign (`'10S'`, `'+PT15M'`). The exceptions are units below a millisecond, and `50` and
 * `'50'`, which have no unit and are refused.
 */
export type LockDuration = string

const ISO =
  /^([+-])?P(?:([+-]?\d+(?:\.\d+)?)W)?(?:([+-]?\d+(?:\.\d+)?)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:[.,]\d+)?)S)?)?$/i
const ISO_UNITS_MS = [7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1_000]

/** A duration of a lock that can't be one; the message doesn't name a lock. */
export class InvalidLockDuration extends Error {
  override readonly name = 'InvalidLockDuration'
  constructor(
    /** The value as it was given. */
    readonly value: unknown,
  ) {
    const text = typeof value === 'string' || typeof value === 'number' ? String(value).trim() : ''
    const hint = /^[+-]?\d+(\.\d+)?$/.test(text) ? `; add the unit ('${text}ms' or '${text}s')` : ''
    const got = typeof value === 'string' ? JSON.stringify(value) : String(value)
    super(`expected a duration such as 'PT50S', '50s' or '500ms', got ${got}${hint}`)
  }
}

/**
 * A duration in whole milliseconds: `'PT1M30S'` -> 90000, `'50s'` -> 50000. It may be negative (`'-PT5S'`);
 * years and months have no fixed length and are refused.
 * @throws InvalidLockDuration
 */
export function lockDurationMs(value: unknown): number {
  if (typeof value !== 'string') throw new InvalidLockDuration(value)
  return isoMs(value.trim()) ?? plainMs(value)
}

function isoMs(text: string): number | undefined {
  const [, sign, ...parts] = ISO.exec(text) ?? []
  if (!parts.some((part) => part !== undefined) || /T$/i.test(text)) return undefined
  const ms = parts.reduce((sum, part, i) => sum + Number(part?.replace(',', '.') ?? 0) * ISO_UNITS_MS[i]!, 0)
  return Math.round(sign === '-' ? -ms : ms)
}

function plainMs(text: string): number {
  const [, sign, plain = text] = /^([+-])?(\d.*)$/.exec(text.trim()) ?? []
  try {
    const ms = durationMs(plain.toLowerCase())
    return sign === '-' ? -ms : ms
  } catch (error) {
    if (error instanceof InvalidDuration) throw new InvalidLockDuration(text)
    throw error
  }
}
