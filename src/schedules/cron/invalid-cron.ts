import { Cron as Croner } from 'croner'
import { shown } from '../../options/index.js'

const MOST_SHOWN = 200

/** A cron expression that can't be read; names the field and what is allowed there. */
export class InvalidCron extends Error {
  override readonly name = 'InvalidCron'
  constructor(
    /** The value that was given. */
    readonly expression: unknown,
    /** The wrong field, what it accepts, and what it got. */
    readonly problem: string,
  ) {
    super(
      `cron: ${(typeof expression === 'string' ? JSON.stringify(expression) : shown(expression)).slice(0, MOST_SHOWN)}: ${problem}`,
    )
  }
}

const FORMS = "'*', a value, a range 'a-b', a step '*/n' or 'a-b/n', or several separated by ','"
/** The maximum length of an expression, because the cache of parsed expressions needs a bound. Longer ones are lists of single values. */
export const MOST_LENGTH = 1_000

const SECOND = { name: 'second', allowed: `0-59; ${FORMS}` }
const FIELDS = [
  { name: 'minute', allowed: `0-59; ${FORMS}` },
  { name: 'hour', allowed: `0-23; ${FORMS}` },
  {
    name: 'day of month',
    allowed: `1-31, 'L' (the last), 'nW' (the weekday nearest to n), 'LW' (the last weekday); ${FORMS}`,
  },
  { name: 'month', allowed: `1-12 or JAN-DEC; ${FORMS}` },
  {
    name: 'day of week',
    allowed: `0-7 or SUN-SAT (0 and 7: Sunday), 'd#n' (the nth of the month), 'd#L' (its last), a leading '+' (only where the day of month matches too); ${FORMS}`,
  },
]

const MACROS = ['@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly']

/** The problem of an expression; undefined if no field is wrong when looked at alone. */
export function problemOf(expression: string): string | undefined {
  if (expression.length > MOST_LENGTH)
    return `expected at most ${MOST_LENGTH} characters, got ${expression.length}; use ranges instead of single values`
  const parts = expression.trim().split(/\s+/)
  if (parts[0]?.startsWith('@')) {
    return parts.length === 1 && MACROS.includes(parts[0].toLowerCase())
      ? undefined
      : `expected one of ${MACROS.join(', ')}; for every few minutes use '*/5 * * * *' or interval`
  }
  if (parts.length !== 5 && parts.length !== 6) {
    const names = FIELDS.map((field) => field.name).join(', ')
    return `expected 5 fields (${names}) or 6 (with seconds first), got ${expression.trim() === '' ? 0 : parts.length}`
  }
  const fields = parts.length === 6 ? [SECOND, ...FIELDS] : FIELDS
  const bad = fields.flatMap((field, i) => {
    const refused = refusalOf(fields.map((_, j) => (i === j ? parts[i] : '*')).join(' '))
    if (refused === undefined) return []
    return [`${field.name}: expected ${field.allowed}; got '${parts[i]}'${hintFor(parts[i]!, refused)}`]
  })
  return bad.length > 0 ? bad.join('. ') : undefined
}

/** A hint for syntax that other crons accept, and how to write it here. */
function hintFor(part: string, refused: string): string {
  if (/\bL-\d/i.test(part)) return " (for days before the last: run on '28-31', and have the task check the day)"
  if (/from value is larger/i.test(refused))
    return " (a range goes up: write one that wraps as two, such as '22-23,0-6')"
  return ''
}

export const croner = (expression: string, timezone: string) =>
  new Croner(expression, { timezone, mode: '5-or-6-parts', paused: true })

function refusalOf(expression: string): string | undefined {
  try {
    croner(expression, 'UTC')
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}
