import type { Logger } from '../../../phases/index.js'
import { type Clock, formatMs, sleep } from '../../../time/index.js'
import { READINESS_WITHIN_MS, type WorkerLink } from './worker-link.js'

const EVERY_MS = 10_000
/**
 * The most unanswered requests: one minute, which a liveness probe gives a single replica. A loop blocked well beyond the usual lockTimeout
 * (30 s) is tolerated.
 */
const MOST_UNANSWERED = 6
/** The same for a worker that is starting, which may load large modules, or wait long for a CPU: 5 min, which a startup probe gives. */
const MOST_UNANSWERED_AT_START = 30
/** The multiple of the interval from which a turn is late: this process, or the machine, was also short of time. */
const LATE = 1.5

export interface Watched {
  readonly name: string
  readonly link: Pick<WorkerLink, 'identity' | 'pid' | 'unanswered' | 'askForSignOfLife' | 'kill'> | undefined
}

/**
 * Asks workers for signs of life, and kills those that give none: a blocked event loop (a handler with `for (;;) {}`)
 * renews no lease, ignores SIGTERM, and never ends on its own.
 *
 * Invariant: a worker is killed only after 6 requests in a row without any message from it, each made in a turn of this process
 * that was on time. Time during which this process doesn't run (paused, starved, the machine suspended) doesn't count.
 */
export class SignsOfLife {
  private turnedAtMs: number

  constructor(
    private readonly workers: readonly Watched[],
    private readonly logger: Logger,
    private readonly clock: Clock,
    private readonly everyMs = EVERY_MS,
  ) {
    this.turnedAtMs = clock.monotonicMs()
  }

  async watch(signal: AbortSignal): Promise<void> {
    this.turnedAtMs = this.clock.monotonicMs()
    for (;;) {
      await sleep(this.everyMs, { signal, unref: true })
      if (signal.aborted) return
      this.turn()
    }
  }

  turn(): void {
    const now = this.clock.monotonicMs()
    const isLate = now - this.turnedAtMs > this.everyMs * LATE
    this.turnedAtMs = now
    if (isLate) return // the messages that they have sent in the meantime are read after this turn
    for (const { name, link } of this.workers) {
      if (!link) continue
      const most = link.identity === undefined ? MOST_UNANSWERED_AT_START : MOST_UNANSWERED
      if (link.unanswered >= most) this.end(name, link)
      else link.askForSignOfLife()
    }
  }

  /** The reason why a worker can't be asked, or didn't answer. */
  silence({ link }: Watched): string {
    const silentMs = ((link?.unanswered ?? 0) - 1) * this.everyMs
    return silentMs > 0 ? `no sign of life for ${formatMs(silentMs)}` : `no answer in ${formatMs(READINESS_WITHIN_MS)}`
  }

  private end(name: string, link: NonNullable<Watched['link']>): void {
    const silentMs = link.unanswered * this.everyMs
    link.unanswered = 0 // so that one that can't be killed (it waits for a disk) is reported again from time to time
    this.logger.error(
      `worker ${name} (process ${link.pid}) has given no sign of life for ${formatMs(silentMs)}: its event loop is blocked, most likely by a handler that never returns; ` +
        'it is killed and restarted. Others claim what it held (lockedBy); a document that does this to its worker on every claim is parked after maxClaims claims',
      { worker: name, lockedBy: link.identity, silentMs },
    )
    link.kill()
  }
}

/** True if more than the latest request is unanswered: further requests are pointless. */
export const isSilent = ({ unanswered }: Pick<WorkerLink, 'unanswered'>): boolean => unanswered > 1
