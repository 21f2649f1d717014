import type { Db } from 'mongodb'
import { Doorbell, DoorbellUnavailable, type Hearing, type Listener, type Ring } from '../../../doorbell/index.js'
import { workingPhases } from '../../model/model.js'
import { RateLimit } from '../../reporting/bounded-log.js'
import type { Environment } from '../context/environment.js'
import type { RunningLifecycle } from '../lifecycle/running-lifecycle.js'
import type { DoorbellStatus } from '../options/replica-options.js'

/** The failures after which the doorbell reports a cut connection (after 8 s): the tick reports it already, because it fails too. */
const PATIENCE = 5
/** The least pool for listening: with fewer connections a listener on the work's own client would be in the way of the work. */
const LEAST_POOL = 5

/** Connects a replica to the doorbell: it claims or looks immediately for documents that it hears of, and rings for those it can't take. */
export class DoorbellLink {
  private readonly doorbell: Doorbell | undefined
  private listening: Listener | undefined
  private hearing: Hearing = { listening: false }
  private failures = 0
  private isReported = false
  private readonly failuresReported: RateLimit

  /** @param look looks at everything, after any look that is under way */
  constructor(
    private readonly env: Environment,
    private readonly lifecycles: readonly Pick<RunningLifecycle, 'model' | 'claimer'>[],
    private readonly look: () => Promise<unknown>,
  ) {
    const { clock, identity: self } = env
    this.failuresReported = new RateLimit(clock, 3, 60_000)
    const { db, doorbellDb: listeningDb, doorbell: mode, indexes } = env.options
    if (mode === 'off') return
    const onHearing = (hearing: Hearing) => this.heardOf(hearing)
    this.doorbell = new Doorbell({ db, listeningDb, mode, create: indexes === 'create', self, clock, onHearing })
  }

  get status(): DoorbellStatus {
    if (!this.listening) return 'off'
    return this.hearing.listening ? this.hearing.kind : 'deaf'
  }

  /** Starts to listen. Does nothing where it would have to listen on the work's own client and that has a small pool. */
  listen(): void {
    const { db, doorbellDb } = this.env.options
    if (!doorbellDb && poolSizeOf(db) < LEAST_POOL) return
    const names = this.lifecycles.map(({ model }) => model.name)
    this.listening ??= this.doorbell?.listen(names, (ring) => this.act(ring))
  }

  /**
   * Rings for other replicas, because this one has no room. Only a replica that listens rings: one that its caller ticks is alone with that caller.
   */
  ring(ring: Ring): void {
    if (this.listening) this.doorbell?.ring(ring)
  }

  /** Stops listening, and sends the last rings. */
  async stop(): Promise<void> {
    await Promise.all([this.listening?.stop(), this.listening && this.doorbell?.flush()])
    this.listening = undefined
  }

  private async act(ring: Ring): Promise<void> {
    this.env.observer.rung(ring)
    const rung = this.lifecycles.filter(({ model }) => ring.lifecycles.includes(model.name))
    const offers = rung.map(({ model, claimer }) => {
      const working = workingPhases(model)
      return { claimer, phases: (ring.phases ?? []).filter((phase) => working.includes(phase)) }
    })
    // A phase that only one of two lifecycles has says nothing about the other.
    if (offers.length === 0 || offers.some(({ phases }) => phases.length === 0)) await this.look()
    else if (ring.ids) for (const { claimer, phases } of offers) claimer.offerNamed(phases[0]!, ring.ids)
    else for (const { claimer, phases } of offers) claimer.offer(phases)
  }

  private heardOf(hearing: Hearing): void {
    const { logger } = this.env
    this.hearing = hearing
    if (hearing.listening) {
      if (this.isReported) logger.info(`the doorbell can be heard again (${hearing.kind})`)
      this.isReported = false
      this.failures = 0
    } else if (hearing.error !== undefined && !this.isReported) {
      this.failures += 1
      if (isOutage(hearing.error) && this.failures < PATIENCE) return
      if (!this.failuresReported.take()) return
      this.isReported = true
      const why = hearing.error instanceof Error ? hearing.error.message : String(hearing.error)
      logger.warn(`the doorbell cannot be heard, so new documents wait for the next tick: ${why}`)
    }
  }
}

/** True for anything but an answer of the server. */
const isOutage = (error: unknown): boolean =>
  !(error instanceof DoorbellUnavailable) && typeof (error as { code?: unknown } | undefined)?.code !== 'number'

const poolSizeOf = (db: Db): number => db.client?.options?.maxPoolSize || Number.POSITIVE_INFINITY
