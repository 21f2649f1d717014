import type { Logger } from '../../../phases/index.js'
import { type Clock, formatMs, sleep } from '../../../time/index.js'
import { READINESS_WITHIN_MS, type WorkerLink } from './worker-link.js'

const EVERY_MS = 10_000
/** One minute, as a liveness probe gives a single replica; a loop blocked well beyond the usual lockTimeout (30 s) is tolerated. */
const MOST_UNANSWERED = 6
/** A worker that is starting may load large modules, or wait long for a CPU: 5 min, what a startup probe gives. */
const MOST_UNANSWERED_AT_START = 30
/** A turn later than this multiple of the interval shows that this process, or the machine, was short of time too. */
const LATE = 1.5

export interface Watched {
  readonly name: string
  readonly link: Pick<WorkerLink, 'identity' | 'pid' | 'unanswered' | 'askForSignOfLife' | 'kill'> | undefined
}

/**
 * Asks workers for signs of life, and kills those that give none: a blocked event loop (a handler with `for (;;) {}`)
 * renews no lease, ignores SIGTERM, and never ends by itself.
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
    if (isLate) return // the messages they have sent meanwhile are read after this turn
    for (const { name, link } of this.workers) {
      if (!link) continue
      const most = link.identity === undefined ? MOST_UNANSWERED_AT_START : MOST_UNANSWERED
      if (link.unanswered >= most) this.end(name, link)
      else link.askForSignOfLife()
    }
  }

  /** Why a worker can't be asked, or didn't answer. */
  silence({ link }: Watched): string {
    const silentMs = ((link?.unanswered ?? 0) - 1) * this.everyMs
    return silentMs > 0 ? `no sign of life for ${formatMs(silentMs)}` : `no answer in ${formatMs(READINESS_WITHIN_MS)}`
  }

  private end(name: string, link: NonNullable<Watched['link']>): void {
    const silentMs = link.unanswered * this.everyMs
    link.unanswered = 0 // so that one that can't be killed (it waits for a disk) is reported again once in a while
    this.logger.error(
      `worker ${name} (process ${link.pid}) has given no sign of life for ${formatMs(silentMs)}: its event loop is blocked, most likely by a handler that never returns; ` +
        'it is killed and restarted. Others claim what it held (lockedBy); a document that does this to its worker on every claim is parked after maxClaims claims',
      { worker: name, lockedBy: link.identity, silentMs },
    )
    link.kill()
  }
}

/** More than the latest request is unanswered: there is no point in asking it anything else. */
export const isSilent = ({ unanswered }: Pick<WorkerLink, 'unanswered'>): boolean => unanswered > 1
