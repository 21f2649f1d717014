import type { Collection, Document } from 'mongodb'
import { ANSWERED, type Batch, Batcher } from '../../../concurrency/index.js'
import {
  EndWriter,
  ID_INDEX,
  idKey,
  isDatabaseError,
  isLeaseUnmoved,
  type Lease,
  readEach,
  type StepEnd,
  uncountClaims,
  type Verdict,
} from '../../../lock/index.js'
import { numbered } from '../../../options/index.js'
import { recordedError } from '../../errors/recorded-error.js'
import { readProjection } from '../../model/settings.js'
import type { OutageLog } from '../../reporting/bounded-log.js'
import type { PrefetchTargets } from '../concurrency/prefetch-target.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import { FRESH_MS, type Held } from '../lease/held.js'
import { type Ending, type EndingRules, goesOn } from '../run/ending-rules.js'
import type { NewLists } from '../run/step-children.js'
import { assignOwn } from '../run/step-run.js'
import { reportEnd, reportLoss } from '../run/step-runner.js'

/** Records the ends of steps, each under its token. Every write to a held document passes through here, one at a time. */
export class OutcomeRecorder {
  private readonly writes: WriteGrouper
  private readonly refresher: Refresher
  private readonly writing = new AbortController()

  /** @param isLoaded true while documents wait for places on the event loop */
  constructor(
    private readonly env: LifecycleEnvironment,
    private readonly endings: EndingRules,
    private readonly prefetchTargets: PrefetchTargets,
    private readonly outage: OutageLog,
    isLoaded: () => boolean,
  ) {
    const onRetry = (error: unknown) => outage.failed(error)
    const { signal } = this.writing
    const writer = new EndWriter({ ...env, onRetry, signal })
    this.writes = new WriteGrouper(writer, isLoaded)
    this.refresher = new Refresher(env.collection, env.model.settings.progress, readProjection(env.model.settings))
  }

  /**
   * Records an ending, or what takes its place; resolves with what was stored. If that continues a chain of steps (`goesOn`), the document is up to
   * date and its next step may begin; otherwise its lease is over. undefined: nothing was recorded, and the document is another holder's, or is left
   * until its lease runs out.
   */
  async record(held: Held, ending: Ending): Promise<Ending | undefined> {
    let verdict: Verdict
    const { token } = held.lease // the write changes it
    try {
      verdict = await this.writes.record(ending)
      this.outage.succeeded()
    } catch (error) {
      this.outage.failed(error) // it was stopped: its lease expires, and the step runs again
      return undefined
    }
    switch (verdict.kind) {
      case 'recorded':
        return this.recorded(held, verdict.appliesPendingInsert ? lettingGo(ending) : ending, token)
      case 'rejected':
        return this.recordInstead(held, ending, verdict.error, verdict.appliesPendingInsert)
      case 'givenUp':
        reportLoss(this.env, held, 'givenUp', verdict.error)
        void this.uncount([held], 'an outcome that was given up')
        return undefined
      default:
        reportLoss(this.env, held, verdict.kind === 'lost' ? 'refused' : 'movedOn')
        return undefined
    }
  }

  /** Stores fields in the middle of a step; false: the lease is lost. */
  async checkpoint(held: Held, set: Record<string, unknown>, also?: NewLists): Promise<boolean> {
    const ending = this.endings.checkpoint(held, set, held.run?.ranMs() ?? 0, also)
    const verdict = await this.writes.record(ending)
    if (verdict.kind === 'givenUp') held.run?.abort('lease in danger') // however the handler reacts, no attempt is used
    if (verdict.kind === 'rejected' || verdict.kind === 'givenUp') throw verdict.error
    if (verdict.kind === 'recorded' && ending.set) {
      held.document = { ...held.document }
      assignOwn(held.document, ending.set)
    }
    if (verdict.kind === 'recorded' && also) {
      const { progress } = this.env.model.settings
      const { reason: _, ...stored } = also
      held.document = { ...held.document, [progress]: { ...held.document[progress], ...stored } }
    }
    return verdict.kind === 'recorded'
  }

  /** Stops resending writes to a database that doesn't answer. */
  stop(): void {
    this.writing.abort()
  }

  private recorded(held: Held, ending: Ending, token: string): Ending | Promise<Ending | undefined> {
    const now = this.env.clock.monotonicMs()
    this.prefetchTargets[held.kind].recorded(now - held.queuedAtMs - ending.ms)
    held.queuedAtMs = now
    reportEnd(this.env, held, ending, token)
    this.env.callbacks?.recorded(held.lease.id, ending.end)
    if (!goesOn(ending)) return ending
    this.adopt(held, ending)
    held.steps += 1
    held.lastAgain = ending.end.step
    return now - held.readAtMs > FRESH_MS ? this.lookAgain(held, ending) : ending
  }

  private adopt({ document, lease }: Held, { end, set, stale }: Ending): void {
    const { progress } = this.env.model.settings
    // In place, because handlers get copies: a new document and a new progress for each step cost 1-2 us of 21 (measured).
    if (set) assignOwn(document, set)
    document['fence'] = lease.fence
    document['lockedBy'] = lease.token
    document[progress] ??= {}
    const known = document[progress]
    for (const field of stale) delete known[field]
    if (end.kind === 'again' && end.nextStep !== null) known.step = end.nextStep
    known.claims = 1
    known.attempts = 0
    known.at = this.env.serverNow()
  }

  /** Reads the document again for a chain that has gone on for long: it may no longer be this replica's, or its owner's state may call for a rule. */
  private async lookAgain(held: Held, ending: Ending): Promise<Ending | undefined> {
    const { model, clock } = this.env
    try {
      const document = await this.refresher.read(held.lease.id)
      if (document?.['lockedBy'] !== held.lease.token || !isLeaseUnmoved(model.settings, document)) {
        reportLoss(this.env, held, 'refused')
        return undefined
      }
      held.document = document
      held.readAtMs = clock.monotonicMs()
    } catch (error) {
      if (!isDatabaseError(error)) return this.record(held, this.endings.unreadable(held, error as Error))
      this.outage.failed(error)
      return ending
    }
    const wanted = held.document['state']
    const isRuled = model.rules.some((rule) => rule.when === wanted && rule.from.includes(held.phase.name))
    return isRuled ? this.record(held, this.endings.released(held)) : ending
  }

  /**
   * Records an error instead of an outcome that the server refuses because of the document itself. If that is refused too, some documents are
   * quarantined without storing why: poison, and a document whose owner has replaced its `progress`, or that refuses the data an insert has kept for
   * it. Anything else is left to expire, with its claim counted.
   */
  private async recordInstead(
    held: Held,
    { end, set, ms }: Ending,
    error: Error,
    appliesPendingInsert = false,
  ): Promise<Ending | undefined> {
    const { broken, refusing } = this.env
    const isLastResort = end.kind === 'error' || (end.kind === 'park' && !set) || end.kind === 'quarantine'
    if (!isLastResort) return this.record(held, this.endings.afterError(held, error, ms))
    broken.refused({ id: held.lease.id, error })
    if (end.kind === 'park' || (end.kind === 'error' && (appliesPendingInsert || isOwnersProgress(error)))) {
      return this.record(held, this.endings.quarantine(held, end, ms, error))
    }
    refusing.add(held.lease.id)
    return undefined
  }

  /** Uncounts the claims of steps that a stop cut short, or whose outcome the server kept failing to take: no sign of poison. Their leases stay. */
  async uncount(held: readonly Held[], what: string): Promise<void> {
    const { renewalCollection, terms, logger, model } = this.env
    const leases = held.map(({ lease }) => lease)
    try {
      await uncountClaims(renewalCollection, terms(), leases)
    } catch (error) {
      const { message } = recordedError(error)
      logger.warn(
        `${model.name}: ${numbered(leases.length, 'claim')} of ${what} ${leases.length === 1 ? 'stays' : 'stay'} counted: ${message}`,
      )
    }
  }
}

/** The ending as it was recorded: with the data that an insert had kept for the document, and no lease goes on past that. */
function lettingGo(ending: Ending): Ending {
  const { end } = ending
  return { ...ending, end: end.kind === 'again' ? { ...end, keepsLease: false } : end, appliesPendingInsert: true }
}

/** True if `$mergeObjects` found no object: its owner has replaced `progress` under the handler. */
const isOwnersProgress = (error: Error): boolean => (error as { code?: unknown }).code === 40400

type Found = Document | undefined

/** Reads documents again, all of one turn of the event loop in one batch. One that can't be read fails alone. */
export class Refresher {
  private readonly reads = new Batcher<unknown, Found>((ids, batch) => this.readAll(ids, batch))

  constructor(
    private readonly collection: Collection,
    private readonly progress: string,
    private readonly projection?: Document | undefined,
  ) {}

  read(id: unknown): Promise<Found> {
    return this.reads.ask(id)
  }

  private async readAll(ids: readonly unknown[], { asked }: Batch<unknown, Found>): Promise<typeof ANSWERED> {
    const options = { hint: ID_INDEX, ...(this.projection && { projection: this.projection }) }
    const { documents, unreadable } = await readEach(
      this.collection,
      { _id: { $in: [...ids] as never[] } },
      options,
      this.progress,
    )
    const found = new Map(documents.map((one) => [idKey(one['_id']), one]))
    const failed = new Map(unreadable.map(({ id, error }) => [idKey(id), error]))
    for (const { value, resolve, reject } of asked) {
      const error = failed.get(idKey(value))
      if (error) reject(error)
      else resolve(found.get(idKey(value)))
    }
    return ANSWERED
  }
}

/** The flushes in flight under load: while the server has one, the next one fills. Two are best (25,000 steps/s, one: 15,500, measured). */
const FLUSHES_UNDER_LOAD = 2
/** The most flushes in flight: below saturation nothing is gained by waiting for more ends. */
const MOST_FLUSHES = 8

/** True if the lease is still good after this verdict: only then may another write follow under it. */
const mayFollow = ({ kind }: Verdict): boolean => kind === 'recorded' || kind === 'rejected'

/**
 * Groups only those ends of steps that come at the same time: an end is sent at the end of this turn of the event loop. It is held back only if
 * documents are queueing for their steps and two commands are in flight already. It is then sent once one of those has come back: bigger groups
 * shorten the queue. So neither a slow handler nor a slow command holds up the outcome of a fast step, and a write that a command has left in doubt
 * is no longer in flight.
 *
 * Invariant: the writes of one lease go in the order of the requests, one at a time. The next is sent when the one before has its verdict, and not at
 * all if that lost the lease: then it has the same verdict.
 */
export class WriteGrouper {
  /** The last write of each lease that has no verdict yet. */
  private readonly last = new Map<Lease, { readonly end: StepEnd; readonly verdict: Promise<Verdict> }>()

  private readonly writes: Batcher<StepEnd, Verdict>

  /** @param isLoaded true while documents are queueing for their steps */
  constructor(
    private readonly writer: Pick<EndWriter, 'write'>,
    isLoaded: () => boolean,
  ) {
    const most = () => (isLoaded() ? FLUSHES_UNDER_LOAD : MOST_FLUSHES)
    this.writes = new Batcher((ends, batch) => this.write(ends, batch), most)
  }

  record(end: StepEnd): Promise<Verdict> {
    const before = this.last.get(end.lease)
    const verdict = before ? this.after(before.verdict, end) : this.writes.ask(end)
    this.last.set(end.lease, { end, verdict })
    return verdict
  }

  private async after(before: Promise<Verdict>, end: StepEnd): Promise<Verdict> {
    try {
      const verdict = await before
      return mayFollow(verdict) ? await this.writes.ask(end) : verdict
    } finally {
      this.decided(end)
    }
  }

  /** Forgets an end that has its verdict, or never gets one. Handled here, because a `then` on each promise would cost every step something. */
  private decided(end: StepEnd): void {
    if (this.last.get(end.lease)?.end === end) this.last.delete(end.lease)
  }

  private async write(ends: readonly StepEnd[], { asked, back }: Batch<StepEnd, Verdict>): Promise<typeof ANSWERED> {
    let byEnd: Map<StepEnd, (verdict: Verdict) => void> | undefined
    const decided = (end: StepEnd, verdict: Verdict) => {
      byEnd ??= new Map(asked.map(({ value, resolve }) => [value, resolve]))
      this.decided(end)
      byEnd.get(end)!(verdict)
    }
    try {
      const verdicts = await this.writer.write(ends, { inDoubt: back, decided })
      for (const { value, resolve, reject } of asked) {
        const verdict = verdicts.get(value)
        if (verdict) resolve(verdict)
        else reject(new Error('no verdict for a step'))
      }
      return ANSWERED
    } finally {
      for (const end of ends) this.decided(end)
    }
  }
}
