import type { Collection, Db, Document } from 'mongodb'
import { protocolCollection } from '../../../database/index.js'
import {
  type ClockStep,
  ClockSteps,
  LIFECYCLES_COLLECTION,
  type LookResult,
  redateLeases,
  redateOutboxes,
  redatePauses,
  STEP_SLACK_MS,
  type Terms,
} from '../../../lock/index.js'
import { numbered } from '../../../options/index.js'
import { formatMs } from '../../../time/index.js'
import type { LifecycleModel } from '../../model/model.js'
import { RateLimit } from '../../reporting/bounded-log.js'
import { outboxLeaseMs } from '../callbacks/callback-invoker.js'
import { outboxesOf } from '../callbacks/deliverer.js'
import type { Environment } from '../context/environment.js'
import type { LiveReplicas } from '../registry/live-replicas.js'

/**
 * The time by which leases may be later than their replica's last announcement. A replica announces itself every 50 s: one that is gone may have
 * taken leases for a little longer than that.
 */
const UNSEEN_MS = 120_000

export interface ClockWatchOptions extends Pick<Environment, 'clock' | 'logger' | 'observer'> {
  readonly db: Db
  readonly holdMs: number
  readonly liveReplicas: LiveReplicas
  /** The replica's lifecycles, with the terms in force for each. */
  readonly lifecycles: () => readonly { readonly model: LifecycleModel; readonly terms: () => Terms }[]
}

/** A step as it is stored for replicas that start after it. */
interface StoredStep {
  readonly at: Date
  readonly ms: number
  readonly until: Date
}

/**
 * A replica's reaction to a step of the server's clock (docs/lock-protocol.md, "When the server's clock steps").
 *
 * Forward: it holds back documents that only the step has made due until the step has lasted, and stores the step for replicas that start in the
 * meantime. Back: leases from the future begin anew, of documents and of their outboxes. A replica that starts after a step back detects it from
 * times that were stored before.
 */
export class ClockWatch {
  /** The steps of the clock. To be given every server time that is read. */
  readonly steps: ClockSteps
  private readonly lifecycles: Collection<Document & { _id: string }>
  private forward: ClockStep | undefined
  /** The server time that no lease from before a step back is later than. */
  private back: Date | undefined
  /** The latest time stored before a step that has been dealt with. */
  private known: Date | undefined
  /** The bound of log lines for a clock that steps again and again; observers are notified of each step. */
  private readonly lines: RateLimit

  constructor(private readonly options: ClockWatchOptions) {
    const { db, clock, holdMs } = options
    this.lifecycles = protocolCollection(db, LIFECYCLES_COLLECTION)
    this.lines = new RateLimit(clock, 1, 10_000)
    this.steps = new ClockSteps(clock, holdMs, (step) => this.stepped(step))
  }

  /**
   * Deals with steps found since the last look, and by that look. Failures are retried with the next one.
   * @throws the driver's errors
   */
  async serve(found: LookResult): Promise<void> {
    if (!found.now) return
    this.readStored(found, found.now)
    // Another step may be seen in the meantime.
    const { forward, back } = this
    if (forward) await this.tellOthers(forward)
    if (this.forward === forward) this.forward = undefined
    if (back) await this.redate(back, found.now)
    if (this.back === back) this.back = undefined
  }

  private stepped(step: ClockStep): void {
    if (step.ms > 0) this.forward = step
    else this.back = laterOf(this.back, new Date(step.now.getTime() - step.ms + STEP_SLACK_MS))
    this.say(step.ms, '')
  }

  private readStored({ lastSeen, clockStep }: LookResult, now: Date): void {
    const step = clockStep as Partial<StoredStep> | undefined
    if (isStored(step) && step.at.getTime() <= now.getTime() + STEP_SLACK_MS && step.until > now) {
      const agoMs = now.getTime() - step.at.getTime()
      const isNew = this.steps.adopt({ ms: step.ms, now: step.at }, agoMs, step.until.getTime() - now.getTime())
      if (isNew) this.say(step.ms, ', as another replica reported')
    }
    if (!lastSeen || lastSeen.getTime() <= now.getTime() + STEP_SLACK_MS) return
    const isKnown = this.known && lastSeen <= this.known
    this.known = lastSeen
    if (isKnown) return
    const how = ' or more, before this replica first looked: other replicas were last seen at a later time than now'
    if (!this.back) this.say(now.getTime() - lastSeen.getTime(), how)
    this.back = laterOf(this.back, new Date(lastSeen.getTime() + UNSEEN_MS))
  }

  private async tellOthers({ ms, now }: ClockStep): Promise<void> {
    const { holdMs, lifecycles } = this.options
    if (holdMs === 0) return
    const clockStep: StoredStep = { at: now, ms, until: new Date(now.getTime() + holdMs) }
    const ids = lifecycles().map(({ model }) => model.name)
    await this.lifecycles.updateMany({ _id: { $in: ids } }, { $set: { clockStep } } as Document)
  }

  private async redate(until: Date, now: Date): Promise<void> {
    const { db, lifecycles, logger, liveReplicas } = this.options
    for (const { model, terms } of lifecycles()) {
      const collection = protocolCollection<Document>(db, model.collection)
      const count = await redateLeases(collection, terms(), [...model.phases.keys()], until)
      if (count > 0)
        logger.warn(
          `${model.name}: ${numbered(count, 'lease')} taken before the server's clock stepped back ${count === 1 ? 'starts' : 'start'} again from now`,
        )
      const pauses = await redatePauses(collection, terms(), [...model.phases.keys()])
      if (pauses > 0)
        logger.warn(
          `${model.name}: ${numbered(pauses, 'pause')} begun before the server's clock stepped back ${pauses === 1 ? 'starts' : 'start'} again from now`,
        )
    }
    await liveReplicas.say('atOnce')
    for (const { model } of lifecycles()) {
      if (!model.settings.callbacks) continue
      const collection = protocolCollection<Document>(db, model.collection)
      await redateOutboxes(outboxesOf(model, collection, model.settings.callbacks), now, outboxLeaseMs(model))
    }
  }

  private say(ms: number, how: string): void {
    const { holdMs, logger, observer } = this.options
    observer.clockStepped({ ms })
    if (!this.lines.take()) return
    const consequence =
      ms < 0
        ? 'leases and pauses that began before it start again from now'
        : holdMs > 0
          ? `deadlines, removals and ends of leases that only it has made due wait until it has lasted for ${formatMs(holdMs)}`
          : 'deadlines, removals and ends of leases follow it at once (clockHold is 0)'
    const step = `${ms < 0 ? 'back' : 'forward'} by ${formatMs(Math.abs(ms))}`
    logger.error(`the server's clock stepped ${step}${how}: ${consequence}`)
  }
}

/** The later of two dates. A step that hasn't been dealt with yet is dealt with together with the next one. */
const laterOf = (before: Date | undefined, date: Date): Date => (before && before > date ? before : date)

const isStored = (step: Partial<StoredStep> | undefined): step is StoredStep =>
  step?.at instanceof Date && step.until instanceof Date && typeof step.ms === 'number' && step.ms > 0
