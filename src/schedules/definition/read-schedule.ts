import { BSON } from 'mongodb'
import { msOf } from '../../options/index.js'
import { type Cron, cronOf } from '../cron/cron.js'
import { zoneOf } from '../cron/zone.js'
import type { Json } from './schedule-fields.js'

export type Timing =
  | { readonly kind: 'cron'; readonly cron: Cron }
  | { readonly kind: 'interval'; readonly everyMs: number }
  | { readonly kind: 'once'; readonly at: Date }

/** A schedule's fields, checked: milliseconds, dates, every default filled in. */
export interface CheckedSchedule {
  readonly task: string
  readonly args: Json
  readonly timing: Timing
  readonly isActive: boolean
  readonly coalesce: boolean
  readonly maxInstances: number
  /** null: no limit. */
  readonly graceMs: number | null
  readonly jitterMs: number
  readonly startAt: Date | null
  readonly endAt: Date | null
  readonly attempts: number
  readonly retryMs: number
  readonly longestRetryMs: number
  /** null: LONGEST_RUN_MS. */
  readonly timeoutMs: number | null
}

export const YEAR_10000 = Date.UTC(10_000, 0)
const DEFAULT_GRACE_MS = 300_000
const DEFAULT_RETRY_MS = 10_000
const DEFAULT_LONGEST_RETRY_MS = 600_000
const LONGEST_SPAN_MS = 10 * 365 * 86_400_000
const MOST_ARGS_BYTES = 256 * 1024
/** A replica gives up a step after 24 h; a run's own timeout comes first. */
export const LONGEST_RUN_MS = 23 * 3_600_000
export const TASK_NAME = /^[^\s$.\0][^\s\0]{0,199}$/
const RETRY_FIELDS = ['attempts', 'backOff', 'longest']

type Given = Readonly<Record<string, unknown>>

/**
 * Checks the fields of a schedule.
 * @returns the schedule, or its problems: each with the field, what was expected and what was given
 */
export function readSchedule(given: Given): { schedule: CheckedSchedule } | { problems: string[] } {
  const problems: string[] = []
  const attempt = <T, F>(name: string, read: () => T, fallback: F): T | F => {
    try {
      return read()
    } catch (error) {
      const { message } = error as Error
      problems.push(message.startsWith(name) ? message : `${name}: ${message}`)
      return fallback
    }
  }
  /** Reads a field that may be missing. */
  const read = <T, F>(name: string, type: (value: unknown) => T, fallback: F, value = given[name]): T | F =>
    value == null ? fallback : attempt(name, () => type(value), fallback)

  const timezone = read('timezone', (value) => zoneOf(value).name, 'UTC')
  const timings: Readonly<Record<string, (value: unknown) => Timing>> = {
    cron: (value) => ({ kind: 'cron', cron: cronOf(value as string, timezone) }),
    interval: (value) => ({ kind: 'interval', everyMs: intervalMs(value) }),
    at: (value) => ({ kind: 'once', at: date(value) }),
  }
  const named = Object.keys(timings).filter((name) => given[name] != null)
  if (named.length !== 1) {
    problems.push(`expected one of cron, interval and at, got ${named.length === 0 ? 'none' : named.join(' and ')}`)
  }
  const timing = named.length === 1 ? read(named[0]!, timings[named[0]!]!, undefined) : undefined
  const retry = read('retry', anObject, {} as Given)
  for (const name of Object.keys(retry).filter((key) => !RETRY_FIELDS.includes(key))) {
    problems.push(`retry: unknown field '${name}'; known: ${RETRY_FIELDS.join(', ')}`)
  }
  const fields = {
    task: attempt('task', () => taskName(given['task']), ''),
    args: attempt('args', () => json(given['args']), {}),
    isActive: read('isActive', flag, true),
    coalesce: read('coalesce', flag, true),
    maxInstances: read('maxInstances', upTo100, 1),
    graceMs: given['misfireGraceTime'] === null ? null : read('misfireGraceTime', spanMs, DEFAULT_GRACE_MS),
    jitterMs: read('jitter', spanMs, 0),
    startAt: read('startAt', date, null),
    endAt: read('endAt', date, null),
    attempts: read('retry.attempts', upTo100, 1, retry['attempts']),
    retryMs: read('retry.backOff', positiveSpanMs, DEFAULT_RETRY_MS, retry['backOff']),
    longestRetryMs: read('retry.longest', positiveSpanMs, DEFAULT_LONGEST_RETRY_MS, retry['longest']),
    timeoutMs: read('timeout', timeoutMs, null),
  }
  const { startAt, endAt } = fields
  if (startAt && endAt && endAt <= startAt) {
    problems.push(`endAt: expected a time after startAt (${startAt.toISOString()}), got ${endAt.toISOString()}`)
  }
  if (timing?.kind === 'once' && endAt && timing.at > endAt) {
    problems.push(`at: expected a time no later than endAt (${endAt.toISOString()}), got ${timing.at.toISOString()}`)
  }
  const gapMs = fields.jitterMs === 0 || !timing ? undefined : shortestGapMs(timing)
  if (gapMs !== undefined && fields.jitterMs > gapMs) {
    problems.push(`jitter: expected at most the ${gapMs} ms between two due times, got ${shown(given['jitter'])}`)
  }
  return problems.length > 0 || !timing ? { problems } : { schedule: { ...fields, timing } }
}

/** The longest jitter. With a longer one a run would start after the next one, which then stands for both. */
function shortestGapMs(timing: Timing): number | undefined {
  if (timing.kind === 'cron') return timing.cron.shortestGapMs
  return timing.kind === 'interval' ? timing.everyMs : undefined
}

// The types of the fields: each converts a value, or throws what was expected and what was given.

function taskName(value: unknown): string {
  if (typeof value === 'string' && TASK_NAME.test(value)) return value
  const hint =
    typeof value === 'function' ? "; a function can't be stored: register it under a name, and give that name" : ''
  throw new Error(`expected the name of a registered task, got ${shown(value)}${hint}`)
}

function json(args: unknown = {}): Json {
  const problem = notJson(args, 'args', 0)
  if (problem) throw new Error(problem)
  if (Buffer.byteLength(JSON.stringify(args)) <= MOST_ARGS_BYTES) return args as Json
  throw new Error('expected at most 256 KB of JSON; store large data elsewhere and pass its id')
}

function date(value: unknown): Date {
  const found = value instanceof Date ? value : typeof value === 'string' ? isoDate(value) : undefined
  if (found && found.getTime() < YEAR_10000) return found
  if (found && found.getTime() >= YEAR_10000) {
    throw new Error(`expected a date before the year 10000, got ${shown(found)}`)
  }
  throw new Error(`expected a date, or a string such as '2026-11-21T06:00:00Z', got ${shown(value)}`)
}

function flag(value: unknown): boolean {
  if (typeof value === 'boolean') return value
  throw new Error(`expected true or false, got ${shown(value)}`)
}

function upTo100(value: unknown): number {
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 100) return value as number
  throw new Error(`expected a whole number from 1 to 100, got ${shown(value)}`)
}

function intervalMs(value: unknown): number {
  const ms = positiveSpanMs(value)
  if (ms >= 1_000) return ms
  throw new Error(`expected at least 1 s, got ${shown(value)}`)
}

function timeoutMs(value: unknown): number {
  const ms = positiveSpanMs(value)
  if (ms <= LONGEST_RUN_MS) return ms
  throw new Error(
    `expected at most 23 h for one try, got ${shown(value)}; divide what takes longer into several runs, or make it a lifecycle`,
  )
}

function anObject(value: unknown): Given {
  if (typeof value === 'object' && !Array.isArray(value)) return value as Given
  throw new Error(`expected { ${RETRY_FIELDS.join(', ')} }, got ${shown(value)}`)
}

/** A date string with its zone: without one it would mean another time on each machine. */
const isoDate = (text: string): Date | undefined =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)$/.test(text) ? new Date(text) : undefined

function notJson(value: unknown, path: string, depth: number): string | undefined {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return undefined
  if (typeof value === 'number' && Number.isFinite(value)) return undefined
  if (depth > 50) return `${path}: expected JSON of at most 50 levels; is there a cycle?`
  const isPlain = typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value))
  if (!isPlain && !Array.isArray(value))
    return `${path}: expected JSON (null, true, false, numbers, strings, arrays, objects), got ${kindOf(value)}`
  for (const [key, inner] of Array.isArray(value) ? value.entries() : Object.entries(value as object)) {
    const problem = notJson(inner, `${path}.${key}`, depth + 1)
    if (problem) return problem
  }
  return undefined
}

function kindOf(value: unknown): string {
  if (typeof value === 'object' && value !== null) {
    const bson = (value as { _bsontype?: string })._bsontype
    return bson ? `a ${bson} (${BSON.EJSON.stringify({ value })})` : `a ${value.constructor.name}`
  }
  return shown(value)
}

const DURATIONS = ['interval', 'misfireGraceTime', 'jitter', 'timeout', 'retry.backOff', 'retry.longest']

/** A problem for each duration without a unit: only stored ones count as seconds. */
export function bareNumbers(given: Given): string[] {
  const retry = Object(given['retry']) as Given
  return DURATIONS.flatMap((name) => {
    const value = name.startsWith('retry.') ? retry[name.slice('retry.'.length)] : given[name]
    if (typeof value !== 'number') return []
    return [`${name}: expected a duration with its unit, such as '5m', got ${value}; ${value} seconds are '${value}s'`]
  })
}

/**
 * A duration in milliseconds; 0 or more. A number is one of seconds.
 * @throws Error that says what was expected and what was given, without the field's name
 */
const spanMs = (value: unknown): number => msWithin(value, 0, '0 or more')

/** A duration in milliseconds; more than 0. */
const positiveSpanMs = (value: unknown): number => msWithin(value, 1, 'more than 0')

function msWithin(value: unknown, leastMs: number, bound: string): number {
  const ms = typeof value === 'number' ? value * 1_000 : msOf(value)
  if (ms >= leastMs && ms <= LONGEST_SPAN_MS) return Math.round(ms)
  throw new Error(`expected a duration such as '5m', ${bound} and at most 10 years, got ${shown(value)}`)
}

export function shown(value: unknown): string {
  if (typeof value === 'function') return `a function${value.name ? ` (${value.name})` : ''}`
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'an invalid date' : value.toISOString()
  const text = JSON.stringify(value, (_, inner) => (typeof inner === 'bigint' ? `${inner}n` : inner))
  return text === undefined ? String(value) : text.length > 80 ? `${text.slice(0, 80)}...` : text
}
