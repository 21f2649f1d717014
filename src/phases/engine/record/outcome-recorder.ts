import {
  EndWriter,
  isDatabaseError,
  isLeaseUnmoved,
  type StepEnd,
  uncountClaims,
  type Verdict,
} from '../../../lock/index.js'
import type { Capacity } from '../claim/capacity.js'
import { readProjection } from '../claim/read-projection.js'
import { FRESH_MS, type Held } from '../lease/held.js'
import type { HeldDocuments } from '../lease/held-documents.js'
import type { OutageLog } from '../report/outage-log.js'
import { reportEnd, reportLoss } from '../report/reports.js'
import { assignOwn } from '../run/deep-copy.js'
import type { Ending, EndingRules, Situation } from '../run/ending-rules.js'
import { recordedError } from '../run/recorded-error.js'
import type { RunnerContext } from '../runner-context.js'
import { Refresher } from './refresher.js'
import { WriteGrouper } from './write-grouper.js'

export interface OutcomeRecorderOptions {
  readonly context: RunnerContext
  readonly holdings: HeldDocuments
  readonly endings: EndingRules
  readonly capacityOf: (phase: string) => Capacity
  readonly outage: OutageLog
  readonly situation: (held: Held) => Situation
  /** A document waits in the line for its next step. */
  readonly onQueued: () => void
  readonly onDropped: () => void
  /** A turn that is over was recorded. */
  readonly onRecorded: (held: Held, ending: Ending) => void
}

/**
 * Records how turns ended, each under its token, and does what follows: the next step of a chain goes to the back of the
 * line, all else is let go. Whatever is written of a held document passes through here, one write at a time.
 */
export class OutcomeRecorder {
  private readonly recorder: WriteGrouper
  private readonly refresher: Refresher
  private readonly writing = new AbortController()

  constructor(private readonly options: OutcomeRecorderOptions) {
    const { context, outage, holdings } = options
    const { collection, terms, keepTermsFresh } = context
    const onRetry = (error: unknown) => outage.failed(error)
    const { clock } = context
    const { signal } = this.writing
    const writer = new EndWriter({ collection, terms, keepTermsFresh, clock, onRetry, signal })
    this.recorder = new WriteGrouper(writer, () => holdings.queuedForLoop > 0)
    this.refresher = new Refresher(collection, readProjection(context.model.settings))
  }

  /** Never rejects: what goes wrong with one document costs that one its lease, and nobody else anything. */
  async record(held: Held, ending: Ending): Promise<void> {
    const { context, outage, capacityOf } = this.options
    try {
      const token = held.lease.token
      const end: StepEnd = { lease: held.lease, ...ending }
      let verdict: Verdict
      try {
        verdict = await this.recorder.record(end)
        outage.succeeded()
      } catch (error) {
        outage.failed(error) // stopped meanwhile: its lease passes, and the step runs again
        return this.drop(held)
      }
      if (verdict.kind === 'rejected') return await this.recordRejection(held, ending, verdict.error)
      if (verdict.kind === 'givenUp') return await this.giveUp(held, token, verdict.error)
      if (verdict.kind !== 'recorded') {
        reportLoss(context, held, token, verdict.kind === 'lost' ? 'refused' : 'movedOn')
        return this.drop(held)
      }
      const now = context.clock.monotonicMs()
      capacityOf(held.phase.name).recorded(now - held.queuedAtMs - ending.ms)
      held.queuedAtMs = now
      reportEnd(context, held, ending)
      if (ending.end.kind === 'again' && ending.end.keepsLease) return await this.goOn(held, ending)
      this.drop(held)
      this.options.onRecorded(held, ending)
    } catch (error) {
      this.drop(held)
      const { logger, model } = context
      logger.error(`${model.name}: the end of a step could not be recorded: ${recordedError(error).message}`, { error })
    }
  }

  /** Stores fields in the middle of a step; false: the lease is lost. */
  async checkpoint(held: Held, set: Record<string, unknown>): Promise<boolean> {
    const ending = this.options.endings.checkpoint(held, set, held.run?.ranMs() ?? 0)
    const verdict = await this.recorder.record({ lease: held.lease, ...ending })
    if (verdict.kind === 'givenUp') held.run?.abort('lease in danger') // whatever the handler makes of it: no attempt is used
    if (verdict.kind === 'rejected' || verdict.kind === 'givenUp') throw verdict.error
    if (verdict.kind === 'recorded') held.document = { ...held.document, ...set }
    return verdict.kind === 'recorded'
  }

  drop(held: Held): void {
    this.options.holdings.drop(held)
    this.options.onDropped()
  }

  /** Gives up what is being sent again and again to a database that doesn't answer. */
  stop(): void {
    this.writing.abort()
  }

  /**
   * An outcome that the server refuses for the document's own sake becomes an error; where that is refused too, poison and a
   * `progress` that has become its owner's are put aside without a word, and all else is left to expire, its claims counted.
   */
  private async recordRejection(held: Held, ending: Ending, error: Error): Promise<void> {
    const { context, endings, situation } = this.options
    const { kind } = ending.end
    const isLastResort = kind === 'error' || (kind === 'park' && !ending.set) || kind === 'putAside'
    if (!isLastResort) {
      return this.record(held, endings.afterRejection(held, error, ending.ms, situation(held)))
    }
    context.broken.refused({ id: held.lease.id, error })
    if (kind === 'park' || (kind === 'error' && isOwnersProgress(error))) {
      return this.record(held, endings.putAside(held, ending, error))
    }
    context.skips.add(held.lease.id)
    this.drop(held)
  }

  /** The server's fault, whatever it is: its lease runs out and the step is repeated, which counts as no sign of poison. */
  private async giveUp(held: Held, token: string, error: unknown): Promise<void> {
    const { renewalCollection, terms, logger, model } = this.options.context
    reportLoss(this.options.context, held, token, 'givenUp', error)
    this.drop(held)
    try {
      await uncountClaims(renewalCollection, terms(), [held.lease])
    } catch (failure) {
      logger.warn(
        `${model.name}: the claim of an outcome that was given up stays counted: ${recordedError(failure).message}`,
      )
    }
  }

  /** The next step of a chain: at the back of the line, with the document as it is now. */
  private async goOn(held: Held, ending: Ending): Promise<void> {
    const { context, holdings, onQueued } = this.options
    const { model, clock } = context
    const { progress } = model.settings
    const step = ending.end.kind === 'again' ? ending.end.nextStep : null
    // In place, as handlers get copies: a new document and a new progress for each step cost 1-2 us of 21 (measured).
    const { document } = held
    if (ending.set) assignOwn(document, ending.set)
    document['fence'] = held.lease.fence
    document['lockedBy'] = held.lease.token
    document[progress] ??= {}
    const known = document[progress]
    for (const field of ending.stale) delete known[field]
    if (step !== null) known.step = step
    known.claims = 1
    known.attempts = 0
    known.at = context.serverNow()
    if (clock.monotonicMs() - held.readAtMs > FRESH_MS && !(await this.refresh(held))) return
    holdings.queue(held)
    onQueued()
  }

  /** Reads the document again; false: it isn't this replica's any more, or its owner's state calls for a rule. */
  private async refresh(held: Held): Promise<boolean> {
    const { context, endings, outage } = this.options
    const token = held.lease.token
    try {
      const document = await this.refresher.read(held.lease.id)
      if (document?.['lockedBy'] !== token || !isLeaseUnmoved(context.model.settings, document)) {
        held.lease.end()
        reportLoss(context, held, token, 'refused')
        this.drop(held)
        return false
      }
      held.document = document
      held.readAtMs = context.clock.monotonicMs()
    } catch (error) {
      if (!isDatabaseError(error)) {
        await this.record(held, endings.unreadable(held, error as Error))
        return false
      }
      outage.failed(error)
      return true
    }
    const { rules } = context.model
    const wanted = held.document['state']
    if (!rules.some((rule) => rule.when === wanted && rule.from.includes(held.phase.name))) return true
    await this.record(held, endings.released(held))
    return false
  }
}

/** `$mergeObjects` found no object: its owner has replaced `progress` under the handler. */
const isOwnersProgress = (error: Error): boolean => (error as { code?: unknown }).code === 40400
