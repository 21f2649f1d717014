import { type Clock, formatMs } from '../../time/index.js'
import { causesText, recordedError } from '../errors/recorded-error.js'
import type { Logger } from './logger.js'

const INTERVAL_MS = 60_000
/** Lines of one cause in an interval that are written with their details. */
const LINES = 10
/** Causes that are distinguished in an interval; any further ones are counted by their kind. */
const MOST_CAUSES = 50

/** The cause that lines have in common: one of few kinds, distinguished by phase and name. */
export interface Cause {
  /** One of a fixed few. */
  readonly kind: string
  readonly phase?: string | undefined
  /** A name such as an error's. */
  readonly name?: string | undefined
}

interface Interval {
  readonly cause: Cause
  readonly level: 'warn' | 'error'
  readonly fromMs: number
  lines: number
  suppressed: number
  last: string
}

/**
 * The log lines about single documents, bounded for each cause: the first ten a minute are written with their details, the rest is counted and
 * reported in one line when the minute is over. So 10,000 documents that fail alike are eleven lines, and nothing is left out silently.
 */
export class BoundedLog {
  private readonly intervals = new Map<string, Interval>()

  /** @param lookAt a text that leads people to the documents of a cause */
  constructor(
    private readonly logger: Logger,
    private readonly clock: Clock,
    private readonly lookAt: (cause: Cause) => string = () => '',
  ) {}

  warn(cause: Cause, message: string, fields: object = {}): void {
    this.line('warn', cause, message, fields)
  }

  error(cause: Cause, message: string, fields: object = {}): void {
    this.line('error', cause, message, fields)
  }

  /** Reports what was counted in minutes that are over. To be called now and then; costs nothing when nothing was counted. */
  flush(): void {
    if (this.intervals.size === 0) return
    const now = this.clock.monotonicMs()
    for (const [key, interval] of this.intervals) {
      if (now - interval.fromMs < INTERVAL_MS) continue
      this.summarise(interval, now)
      this.intervals.delete(key)
    }
  }

  /** Reports all that was counted, because `flush` may never be called again. */
  tellAll(): void {
    const now = this.clock.monotonicMs()
    for (const interval of this.intervals.values()) this.summarise(interval, now)
  }

  private line(level: Interval['level'], cause: Cause, message: string, fields: object): void {
    const now = this.clock.monotonicMs()
    let key = `${level} ${cause.kind} ${cause.phase ?? ''} ${cause.name ?? ''}`
    let about = cause
    if (!this.intervals.has(key) && this.intervals.size >= MOST_CAUSES) {
      key = `${level} ${cause.kind}`
      about = { kind: cause.kind }
    }
    let interval = this.intervals.get(key)
    if (!interval || now - interval.fromMs >= INTERVAL_MS) {
      if (interval) this.summarise(interval, now)
      interval = { cause: about, level, fromMs: now, lines: 0, suppressed: 0, last: '' }
      this.intervals.set(key, interval)
    }
    if (interval.lines < LINES) {
      interval.lines += 1
      this.logger[level](message, fields)
    } else {
      interval.suppressed += 1
      interval.last = message
    }
  }

  private summarise(interval: Interval, now: number): void {
    const { cause, level, suppressed, last, fromMs } = interval
    if (suppressed === 0) return
    interval.suppressed = 0
    const where = cause.phase === undefined ? '' : ` in ${cause.phase}`
    const name = cause.name === undefined ? '' : ` (${cause.name})`
    const look = this.lookAt(cause)
    this.logger[level](
      `${cause.kind}: ${suppressed} more${where}${name} within ${formatMs(now - fromMs)} that were not logged individually; the last: ${last}${look && `; ${look}`}`,
      { ...cause, count: suppressed },
    )
  }
}

const REPEAT_AFTER_MS = 30_000

/**
 * Logs outages with a bound, however long they last and however often they come: the first error of an outage, a line each 30 s while it lasts, and
 * its end; at most three outages a minute are reported. So a database that takes reads and refuses writes, where successes and failures alternate,
 * makes at most six lines a minute and not two a tick.
 */
export class OutageLog {
  private since: number | undefined
  private saidAt = Number.NEGATIVE_INFINITY
  private failures = 0
  private latest: unknown
  private isReported = false
  private readonly outages: RateLimit

  constructor(
    private readonly what: string,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.outages = new RateLimit(clock, 3, 60_000)
  }

  get lasting(): boolean {
    return this.since !== undefined
  }

  get lastError(): unknown {
    return this.lasting ? this.latest : undefined
  }

  failed(error: unknown): void {
    this.latest = error
    const now = this.clock.monotonicMs()
    this.failures += 1
    this.since ??= now
    if (this.isReported ? now - this.saidAt < REPEAT_AFTER_MS : !this.outages.take()) return
    this.isReported = true
    this.saidAt = now
    const known = recordedError(error)
    const times = this.failures > 1 ? ` ${this.failures} times` : ''
    this.logger.error(`${this.what} failed${times}: ${inOneLine(known.message)}${causesText(known)}`, {
      error: error instanceof Error ? known.name : 'unknown',
      ...(known.code !== undefined && { code: known.code }),
      failures: this.failures,
      forMs: Math.round(now - this.since),
    })
  }

  succeeded(): void {
    if (this.since === undefined) return
    const lasted = this.clock.monotonicMs() - this.since
    this.since = undefined
    if (!this.isReported) return // its failures are counted in the next one that is reported
    this.logger.info(`${this.what} works again after ${formatMs(lasted)} and ${this.failures} failures`)
    this.isReported = false
    this.failures = 0
  }
}

/** A message in one line. A server inserts its plan of a query, over many lines, between the failure and its reason. */
function inOneLine(message: string): string {
  const lines = message.split('\n').filter((line) => line.trim() !== '')
  const [first = ''] = lines
  return lines.length > 1 ? `${first.trim()} ... ${lines.at(-1)!.trim()}` : first
}

/** Lets through `most` calls within any stretch of time: the bound of log lines that may come often. */
export class RateLimit {
  private times: number[] = []

  constructor(
    private readonly clock: Clock,
    private readonly most: number,
    private readonly withinMs: number,
  ) {}

  /** Returns true if one more may pass now; it then counts. */
  take(): boolean {
    const now = this.clock.monotonicMs()
    this.times = this.times.filter((at) => now - at < this.withinMs)
    if (this.times.length >= this.most) return false
    this.times.push(now)
    return true
  }
}
