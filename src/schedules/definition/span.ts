import { type Duration, durationMs } from '../../time/index.js'

/** A length of time in a schedule: a number of seconds (`300`), or with a unit (`'5m'`). */
export type Span = number | Duration

const MOST_MS = 10 * 365 * 86_400_000

/**
 * In milliseconds; 0 or more.
 * @throws Error that says what was expected and what came, without the field's name
 */
export const spanMs = (value: unknown): number => msOf(value, 0, '0 or more')

/** The same, more than 0. */
export const positiveSpanMs = (value: unknown): number => msOf(value, 1, 'more than 0')

function msOf(value: unknown, leastMs: number, bound: string): number {
  const ms = typeof value === 'number' ? value * 1_000 : textMs(value)
  if (ms >= leastMs && ms <= MOST_MS) return Math.round(ms)
  throw new Error(`expected seconds (300) or a duration ('5m'), ${bound} and at most 10 years, got ${shown(value)}`)
}

function textMs(value: unknown): number {
  try {
    return durationMs(value as string)
  } catch {
    return Number.NaN
  }
}

export function shown(value: unknown): string {
  if (typeof value === 'function') return `a function${value.name ? ` (${value.name})` : ''}`
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'an invalid date' : value.toISOString()
  const text = JSON.stringify(value, (_, inner) => (typeof inner === 'bigint' ? `${inner}n` : inner))
  return text === undefined ? String(value) : text.length > 80 ? `${text.slice(0, 80)}...` : text
}
