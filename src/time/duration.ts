/** A length of time with its unit: `'250ms'`, `'30s'`, `'5m'`, `'1h'`, `'2d'`. A bare number has no unit and is refused. */
export type Duration = `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`

const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** The limit of a duration. Longer ones reach dates that mean something else (9999-12-31 parks), or break date arithmetic. */
const LONGEST_DAYS = 36_500

/** Thrown for a duration that can't be read or is too long; says what was expected and what was given. */
export class InvalidDuration extends Error {
  override readonly name = 'InvalidDuration'
  constructor(
    /** The value that was given. */
    readonly value: unknown,
    expected = "such as '30s', '5m', '1h' or '2d'",
    option?: string,
  ) {
    super(`${option === undefined ? '' : `${option}: `}expected a duration ${expected}, got ${shown(value)}`)
  }
}

function shown(value: unknown): string {
  try {
    return JSON.stringify(value) ?? String(value)
  } catch {
    return `a ${typeof value}` // a bigint, an object that contains itself
  }
}

/**
 * A duration in milliseconds: `'1.5s'` -> 1500, `'5m'` -> 300000.
 * @param option the option that it was given as, for the error
 * @throws InvalidDuration when there is no unit, it is unknown, the number is negative, or it is more than 100 years
 */
export function durationMs(value: Duration | string, option?: string): number {
  const match = typeof value === 'string' ? /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(value.trim()) : null
  if (!match) throw new InvalidDuration(value, undefined, option)
  const ms = Math.round(Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS])
  if (ms > LONGEST_DAYS * UNIT_MS.d) throw new InvalidDuration(value, `of at most ${LONGEST_DAYS}d (100 years)`, option)
  return ms
}

/** Milliseconds for people: 80 -> '80 ms', 1500 -> '1.5 s', 90000 -> '1 min 30 s', 7200000 -> '2 h'. */
export function formatMs(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`
  if (ms < 60_000) return `${Math.round(ms / 100) / 10} s`
  const parts = [
    [Math.floor(ms / UNIT_MS.d), 'd'],
    [Math.floor(ms / UNIT_MS.h) % 24, 'h'],
    [Math.floor(ms / UNIT_MS.m) % 60, 'min'],
    [Math.floor(ms / UNIT_MS.s) % 60, 's'],
  ] as const
  return parts
    .filter(([n]) => n > 0)
    .slice(0, 2)
    .map(([n, unit]) => `${n} ${unit}`)
    .join(' ')
}

/** Formats a moment for people, by its largest unit: 'in 2 s', '3 min ago'. */
export function fromNow(then: Date, now: Date): string {
  const ms = then.getTime() - now.getTime()
  const [n, unit] = formatMs(Math.abs(ms) < 1_000 ? Math.abs(ms) : Math.round(Math.abs(ms) / 1_000) * 1_000).split(' ')
  return ms >= 0 ? `in ${n} ${unit}` : `${n} ${unit} ago`
}
