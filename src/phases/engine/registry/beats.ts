import { hostname } from 'node:os'
import type { Collection, Db, Document } from 'mongodb'
import { packageVersion } from '../../../config/index.js'
import { isServerError, protocolCollection } from '../../../database/index.js'
import { beat, endBeats, forgetDead, REPLICAS_COLLECTION, type ReplicaReport } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import { causesText, recordedError } from '../../errors/recorded-error.js'
import type { Logger } from '../../reporting/logger.js'

const FORGET_EVERY_MS = 3_600_000
/** The pause after a refusal: it isn't over in ten seconds, and each one is a line in the server's log. */
const REFUSED_AGAIN_MS = 600_000
const UNAUTHORIZED = 13

export interface BeatsOptions {
  readonly db: Db
  readonly identity: string
  readonly clock: Clock
  readonly logger: Logger
  readonly everyMs: number
  readonly figures: () => Pick<ReplicaReport, 'lifecycles' | 'limits' | 'loopMs' | 'tickMs'>
}

/**
 * A replica's document in `phaselock.replicas`, which shows it to people. No work depends on it or waits for a beat, and one that fails costs a line
 * in the log.
 */
export class Beats {
  private readonly replicas: Collection<Document & { _id: string }>
  private startedAtMs: number | undefined
  private nextAtMs = Number.NEGATIVE_INFINITY
  private forgetAtMs = Number.NEGATIVE_INFINITY
  private current: Promise<void> | undefined
  private isWritten = false
  private failures = 0
  private ended = false

  constructor(private readonly options: BeatsOptions) {
    this.replicas = protocolCollection(options.db, REPLICAS_COLLECTION)
  }

  /** Sends one if it is due and the one before is over. Returns immediately. */
  ifDue(): void {
    const now = this.options.clock.monotonicMs()
    const { everyMs } = this.options
    if (everyMs === 0 || this.ended || this.current || now < this.nextAtMs) return
    this.nextAtMs = now + everyMs
    this.startedAtMs ??= now
    this.current = this.send(now, this.startedAtMs).finally(() => {
      this.current = undefined
    })
  }

  /** Removes the document; to be called once, when nothing is held any more. Never rejects. */
  async end(): Promise<void> {
    this.ended = true
    await this.current
    if (this.isWritten) await endBeats(this.replicas, this.options.identity).catch(() => undefined)
  }

  private async send(now: number, startedAtMs: number): Promise<void> {
    const { identity, everyMs, figures } = this.options
    try {
      const version = await packageVersion().catch(() => undefined)
      await beat(this.replicas, identity, { version, ...place(), everyMs, ...figures() }, now - startedAtMs)
      this.isWritten = true
      this.failures = 0
      if (now >= this.forgetAtMs) {
        this.forgetAtMs = now + FORGET_EVERY_MS
        await forgetDead(this.replicas)
      }
    } catch (error) {
      this.failed(error)
    }
  }

  /**
   * Logs a failure that lasts. An error that isn't the server's answer is an outage, which the tick reports; the start has reported missing rights.
   */
  private failed(error: unknown): void {
    if (!isServerError(error)) return
    if (isServerError(error, UNAUTHORIZED)) {
      this.nextAtMs += REFUSED_AGAIN_MS
      return
    }
    this.failures += 1
    if (this.failures !== 2) return
    const known = recordedError(error)
    const why = `${known.message}${causesText(known)}`
    this.options.logger.warn(`this replica works, but its document in ${REPLICAS_COLLECTION} can't be written: ${why}`)
  }
}

function place(): Pick<ReplicaReport, 'host' | 'pid' | 'pod'> {
  const { POD_NAME, KUBERNETES_SERVICE_HOST } = process.env
  const host = hostname()
  return { host, pid: process.pid, pod: POD_NAME || (KUBERNETES_SERVICE_HOST ? host : undefined) }
}
