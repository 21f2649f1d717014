import type { Logger } from '../../phases/index.js'
import { type Clock, systemClock } from '../../time/index.js'
import { EXIT } from '../errors.js'

/** The time within which a second signal counts as the same one: under npm a Ctrl-C arrives twice, from the terminal and from npm. */
const SAME_SIGNAL_MS = 500
const PARENT_CHECK_MS = 500

/**
 * Waits for SIGTERM, SIGINT or SIGHUP. The first asks for an orderly stop. A second SIGINT, from a user who doesn't want to
 * wait, exits immediately: leases then expire.
 */
export class StopSignals {
  private firstAtMs: number | undefined
  private readonly stop = Promise.withResolvers<NodeJS.Signals>()
  /** The signal that asked for the stop. */
  readonly stopped = this.stop.promise

  constructor(
    private readonly logger: Logger,
    private readonly clock: Clock = systemClock,
    private readonly exitNow: (code: number) => void = (code) => process.exit(code),
  ) {}

  listen(): this {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => this.received(signal))
    return this
  }

  /**
   * Watches the parent process. Under npm or npx there may be a shell in between, which ends on a signal but doesn't pass it on. When our
   * parent is
   * gone, that is taken as a SIGTERM.
   */
  watchParent(env: NodeJS.ProcessEnv, parent: () => number = () => process.ppid): this {
    if (!env['npm_execpath']) return this
    const first = parent()
    const timer = setInterval(() => {
      if (parent() === first) return
      clearInterval(timer)
      this.received('SIGTERM')
    }, PARENT_CHECK_MS)
    timer.unref()
    return this
  }

  received(signal: NodeJS.Signals): void {
    const now = this.clock.monotonicMs()
    if (this.firstAtMs === undefined) {
      this.firstAtMs = now
      this.logger.info(
        `${signal}: no more claims; running steps may finish${signal === 'SIGINT' ? ' (again: exit at once)' : ''}`,
      )
      this.stop.resolve(signal)
    } else if (signal === 'SIGINT' && now - this.firstAtMs > SAME_SIGNAL_MS) {
      this.logger.warn('second SIGINT: exiting at once; what is held becomes free after its lockTimeout')
      this.exitNow(EXIT.interrupted)
    }
  }
}
