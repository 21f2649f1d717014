import { formatMs, type LoopStop, LoopWatch } from '../../../time/index.js'
import { RateLimit } from '../../reporting/bounded-log.js'
import type { Environment } from '../context/environment.js'
import { PhaseActivity } from './step-runner.js'

export interface LoopMonitorOptions extends Pick<Environment, 'clock' | 'logger' | 'observer'> {
  /** The time without a turn after which the event loop counts as blocked. 0: not monitored. */
  readonly limitMs: number
  /** The time that this thread has waited for a processor so far. Default: the system's count. */
  readonly cpuWait?: (() => number) | undefined
}

/** The least time between log lines about each handler that is known for sure, and about all others together. Observers are notified each time. */
const LOG_EVERY_MS = 60_000

/**
 * Notices a blocked event loop and names the handlers that may have done it: while it is blocked no lease is renewed and no other document
 * goes on. A handler that blocks before its first await is known for sure; one that blocks later is only known to be among those whose
 * steps ran.
 */
export class LoopMonitor {
  private readonly activities: PhaseActivity[] = []
  private readonly limits = new Map<string, RateLimit>()
  private readonly watch: LoopWatch | undefined

  constructor(private readonly options: LoopMonitorOptions) {
    const { limitMs, cpuWait } = options
    if (limitMs > 0) this.watch = new LoopWatch(limitMs, (stop) => this.beat(stop), cpuWait)
  }

  activity(lifecycle: string, phase: string): PhaseActivity {
    const activity = new PhaseActivity(lifecycle, phase, this.options.clock)
    this.activities.push(activity)
    return activity
  }

  start(): void {
    for (const activity of this.activities) activity.reset()
    this.watch?.start()
  }

  stop(): void {
    this.watch?.stop()
  }

  /** Returns the longest time without a turn of the event loop since the last call, in whole milliseconds; undefined: it isn't watched. */
  takeLongestMs(): number | undefined {
    if (!this.watch) return undefined
    const { longestMs } = this.watch
    this.watch.longestMs = 0
    return Math.round(longestMs)
  }

  private beat(stop: LoopStop | undefined): void {
    if (stop) this.report(stop)
    for (const activity of this.activities) activity.reset()
  }

  private report({ ms, withoutCpuMs }: LoopStop): void {
    const { limitMs, logger, observer } = this.options
    const isStarved = ms - withoutCpuMs < limitMs
    const ran = isStarved ? [] : this.activities.filter((activity) => activity.ran)
    const known = ran.filter((activity) => activity.longestCallMs >= ms / 2)
    const by = (known.length > 0 ? known : ran).map(({ lifecycle, phase }) => ({ lifecycle, phase }))
    const certain = known.length === 1
    observer.loopBlocked({ ms, by, certain, withoutCpuMs })
    const names = by.map(({ lifecycle, phase }) => `${lifecycle}/${phase}`).join(', ')
    const blocked = `the event loop was blocked for ${formatMs(ms)}`
    if (isStarved) {
      const message =
        `${blocked}; for ${formatMs(withoutCpuMs)} of that the process got no processor, so no handler is to blame; ` +
        'give the machine (or the container, by its limit) more CPU, or run less on it'
      if (this.isDue('no processor')) logger.warn(message, { ms, withoutCpuMs })
    } else if (by.length === 0) {
      if (this.isDue('none')) logger.debug(`${blocked}, while no step of this replica ran`, { ms })
      // Several aren't distinguished by name: nearly every time it is another set of handlers.
    } else if (this.isDue(certain ? names : 'one of several')) {
      const how = certain ? `by the handler of ${names}` : `while steps of ${names} ran`
      const advice =
        'renewals and other documents had to wait; declare a handler that computes for a long time as thread(...)'
      logger.warn(`${blocked} ${how}: ${advice}`, { ms, by })
    }
  }

  private isDue(about: string): boolean {
    const limit = this.limits.get(about) ?? new RateLimit(this.options.clock, 1, LOG_EVERY_MS)
    this.limits.set(about, limit)
    return limit.take()
  }
}
