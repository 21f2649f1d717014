import { BSON } from 'mongodb'
import { type Cron, cronOf, zoneOf } from '../cron/index.js'
import type { Json } from './schedule-fields.js'
import { SCHEDULE_FIELDS } from './schedule-fields.js'
import { shown, spanMs } from './span.js'

/** When a schedule is due. */
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
const MOST_ARGS_BYTES = 256 * 1024
/** A replica gives up a step after 24 h; a run's own timeout comes first. */
export const LONGEST_RUN_MS = 23 * 3_600_000
const NAME = /^[^\s$.\0][^\s\0]{0,199}$/

type Given = Readonly<Record<string, unknown>>

/** @returns the schedule, or what is wrong with it: each problem with its field, what was expected and what came */
export function readSchedule(given: Given): { schedule: CheckedSchedule } | { problems: string[] } {
  const reader = new Reader(given)
  const startAt = reader.date('startAt')
  const endAt = reader.date('endAt')
  const retry = reader.retry()
  const fields = {
    task: reader.task(),
    args: reader.args(),
    timing: reader.timing(),
    isActive: reader.flag('isActive', true),
    coalesce: reader.flag('coalesce', true),
    maxInstances: reader.whole('maxInstances', given['maxInstances'], 1),
    graceMs: given['misfireGraceTime'] === null ? null : reader.span('misfireGraceTime', 'zero', DEFAULT_GRACE_MS),
    jitterMs: reader.span('jitter', 'zero', 0) ?? 0,
    startAt,
    endAt,
    ...retry,
    timeoutMs: reader.timeout(),
  }
  if (startAt && endAt && endAt <= startAt) {
    reader.problems.push(`endAt: expected a time after startAt (${startAt.toISOString()}), got ${endAt.toISOString()}`)
  }
  const { timing } = fields
  if (timing?.kind === 'once' && endAt && timing.at > endAt) {
    reader.problems.push(
      `at: expected a time that is not after endAt (${endAt.toISOString()}), got ${timing.at.toISOString()}`,
    )
  }
  if (reader.problems.length > 0 || !timing) return { problems: reader.problems }
  return { schedule: { ...fields, timing } }
}

/** Names that no schedule has, for what was written in code. In a document they are its owner's own fields and left alone. */
export function unknownFields(given: object, more: readonly string[] = []): string[] {
  const known: readonly string[] = [...SCHEDULE_FIELDS, ...more]
  return Object.keys(given)
    .filter((key) => !known.includes(key))
    .map((key) => `unknown field '${key}'; known: ${known.join(', ')}`)
}

class Reader {
  readonly problems: string[] = []

  constructor(private readonly given: Given) {}

  task(): string {
    const { task } = this.given
    if (typeof task === 'string' && NAME.test(task)) return task
    const hint =
      typeof task === 'function' ? '; a function can not be stored: register it under a name and give that name' : ''
    this.problems.push(`task: expected the name of a registered task, got ${shown(task)}${hint}`)
    return ''
  }

  args(): Json {
    const { args = {} } = this.given
    const problem = notJson(args, 'args', 0)
    if (problem) this.problems.push(problem)
    else if (Buffer.byteLength(JSON.stringify(args)) > MOST_ARGS_BYTES) {
      this.problems.push('args: expected at most 256 KB of JSON; store what is big elsewhere and give its id')
    }
    return args as Json
  }

  timing(): Timing | undefined {
    const { timezone } = this.given
    const isZone = timezone == null || this.attempt(() => zoneOf(timezone)) !== undefined
    const named = (['cron', 'interval', 'at'] as const).filter((name) => this.given[name] != null)
    if (named.length !== 1) {
      this.problems.push(
        `expected one of cron, interval and at, got ${named.length === 0 ? 'none' : named.join(' and ')}`,
      )
      return undefined
    }
    switch (named[0]!) {
      case 'interval': {
        const everyMs = this.span('interval', 'more than zero', 0) ?? 0
        if (everyMs < 1_000) {
          if (everyMs > 0) this.problems.push(`interval: expected at least 1 s, got ${shown(this.given['interval'])}`)
          return undefined
        }
        return { kind: 'interval', everyMs }
      }
      case 'at': {
        const at = this.date('at')
        return at ? { kind: 'once', at } : undefined
      }
      case 'cron':
        return this.attempt(() => ({
          kind: 'cron',
          // An unknown zone is reported already.
          cron: cronOf(
            this.given['cron'] as string,
            isZone ? ((timezone as string | null | undefined) ?? 'UTC') : 'UTC',
          ),
        }))
    }
  }

  date(name: string): Date | null {
    const value = this.given[name]
    if (value == null) return null
    const date = value instanceof Date ? value : typeof value === 'string' ? isoDate(value) : undefined
    if (date && date.getTime() < YEAR_10000) return date
    if (date && date.getTime() >= YEAR_10000) {
      this.problems.push(`${name}: expected a date before the year 10000, got ${shown(date)}`)
      return null
    }
    this.problems.push(`${name}: expected a date, or a text such as '2026-11-21T06:00:00Z', got ${shown(value)}`)
    return null
  }

  flag(name: string, fallback: boolean): boolean {
    const value = this.given[name] ?? fallback
    if (typeof value !== 'boolean') this.problems.push(`${name}: expected true or false, got ${shown(value)}`)
    return value === true
  }

  whole(name: string, value: unknown, fallback: number): number {
    if (value == null) return fallback
    if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 100) return value as number
    this.problems.push(`${name}: expected a whole number from 1 to 100, got ${shown(value)}`)
    return fallback
  }

  span(name: string, least: 'zero' | 'more than zero', fallback: number | null): number | null {
    return this.spanOf(name, this.given[name], least, fallback)
  }

  retry(): Pick<CheckedSchedule, 'attempts' | 'retryMs' | 'longestRetryMs'> {
    const { retry } = this.given
    const isObject = typeof retry === 'object' && retry !== null && !Array.isArray(retry)
    if (retry != null && !isObject) {
      this.problems.push(`retry: expected { attempts, backOff, longest }, got ${shown(retry)}`)
    }
    const { attempts, backOff, longest, ...rest } = (isObject ? retry : {}) as Record<string, unknown>
    for (const name of Object.keys(rest)) {
      this.problems.push(`retry: unknown field '${name}'; known: attempts, backOff, longest`)
    }
    return {
      attempts: this.whole('retry.attempts', attempts, 1),
      retryMs: this.spanOf('retry.backOff', backOff, 'more than zero', DEFAULT_RETRY_MS) ?? DEFAULT_RETRY_MS,
      longestRetryMs: this.spanOf('retry.longest', longest, 'more than zero', DEFAULT_LONGEST_RETRY_MS) ?? 0,
    }
  }

  timeout(): number | null {
    const ms = this.span('timeout', 'more than zero', null)
    if (ms === null || ms <= LONGEST_RUN_MS) return ms
    this.problems.push(
      `timeout: expected at most 23 h for one try, got ${shown(this.given['timeout'])}; divide what takes longer into several runs, or make it a lifecycle`,
    )
    return null
  }

  private spanOf(
    name: string,
    value: unknown,
    least: 'zero' | 'more than zero',
    fallback: number | null,
  ): number | null {
    if (value == null) return fallback
    try {
      return spanMs(value, least)
    } catch (error) {
      this.problems.push(`${name}: ${(error as Error).message}`)
      return null
    }
  }

  private attempt<T>(read: () => T): T | undefined {
    try {
      return read()
    } catch (error) {
      this.problems.push((error as Error).message)
      return undefined
    }
  }
}

/** A string with its zone: without one it would mean another time on each machine. */
function isoDate(text: string): Date | undefined {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)$/.test(text) ? new Date(text) : undefined
}

function notJson(value: unknown, path: string, depth: number): string | undefined {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return undefined
  if (typeof value === 'number' && Number.isFinite(value)) return undefined
  if (depth > 50) return `${path}: expected JSON of at most 50 levels; is there a cycle?`
  if (Array.isArray(value)) return firstProblem(value.entries(), path, depth)
  const isPlain = typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value))
  if (isPlain) return firstProblem(Object.entries(value as object), path, depth)
  return `${path}: expected JSON (null, true, false, numbers, texts, arrays, objects), got ${kindOf(value)}`
}

function firstProblem(
  entries: Iterable<readonly [string | number, unknown]>,
  path: string,
  depth: number,
): string | undefined {
  for (const [key, inner] of entries) {
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
