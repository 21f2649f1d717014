import { type Clock, formatMs } from '../../../time/index.js'
import { causesText, recordedError } from '../../errors/recorded-error.js'
import type { Logger } from '../../reporting/logger.js'
import { RateLimit } from './rate-limit.js'

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
  /** True once the current outage has been reported. */
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

  /** The last error of the current outage. */
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
