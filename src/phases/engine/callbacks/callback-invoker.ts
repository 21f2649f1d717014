import type { Document } from 'mongodb'
import {
  type Delivery,
  errorPauseMs,
  isLastEntry,
  isRemovedPhase,
  type LeaseAge,
  type LetGo,
  type Outbox,
  type OutboxEntry,
  type Outboxes,
  removedPhase,
} from '../../../lock/index.js'
import { numbered } from '../../../options/index.js'
import { systemClock } from '../../../time/index.js'
import { CallbackTimeout } from '../../errors/errors.js'
import { causesText, recordedError } from '../../errors/recorded-error.js'
import type { LifecycleModel } from '../../model/model.js'
import { withFields } from '../../reporting/logger.js'
import type { Callbacks } from '../../step/callbacks.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import { deepCopy } from '../run/step-run.js'
import type { Bulkhead } from './bulkhead.js'

/** The time that an outbox is held beyond the callback's timeout: for the commands around the call. */
const LEASE_MARGIN_MS = 10_000
/** The part of the margin for a callback that couldn't end because the event loop stood still, for at least `STOOD_STILL_MS`. */
const MORE_MS = LEASE_MARGIN_MS / 2
const STOOD_STILL_MS = 100
const MOST_SEQ = 1_000_000_000
const DAMAGED = 'progress.outbox.open holds something else than entries: mend it, or remove progress.outbox'
const NOT_REMOVED = 'it was removed, and somebody has given it another phase since: nobody is told that it is gone'

/** The time that an outbox is held for one call. */
export const outboxLeaseMs = ({ settings }: LifecycleModel): number => settings.callbackTimeoutMs! + LEASE_MARGIN_MS

/** A document in hand: the delivery of its first entry. */
export interface OpenDelivery extends Delivery {
  readonly document: Document
  readonly outbox: Outbox
  readonly isSuspect: boolean
  readonly bulkhead: Bulkhead
  /** The lease on its outbox, which is never renewed. */
  readonly lease: LeaseAge
  /** The monotonic time when its outbox was taken, and from then on when its call began. */
  claimedAtMs: number
  /** The time that the call took. */
  ranMs: number
  /** True if its call has lasted for longer than a quick one: it takes no room from others. */
  isAside: boolean
}

/**
 * Calls a lifecycle's callbacks, each in its bulkhead, with a signal, a timeout, and a lease that outlasts the timeout. No call begins once the replica
 * stops.
 */
export class CallbackInvoker {
  private readonly running = new Set<AbortController>()
  private stopping = false

  constructor(
    private readonly env: Omit<LifecycleEnvironment, 'callbacks'>,
    private readonly callbacks: Callbacks,
    private readonly of: Pick<Outboxes, 'callbacks'>,
    /** Called when a call has gone aside. */
    private readonly onAside: () => void,
  ) {}

  /** Begins no further call. */
  stop(): void {
    this.stopping = true
  }

  /** Aborts the signals of running calls. */
  abort(): void {
    for (const call of this.running) call.abort(new Error('shutdown'))
  }

  /** Delivers the first entry of a document's outbox, and returns how that has ended. */
  async deliver(one: OpenDelivery): Promise<{ seq: number; removed?: string | undefined } | { why: LetGo }> {
    const { model, lines } = this.env
    const { open, isDamaged } = one.outbox
    const removed = one.document['phase'] === removedPhase(model.name) ? removedPhase(model.name) : undefined
    if (isDamaged) {
      const about = { lifecycle: model.name, id: one.id }
      lines.error({ kind: 'damaged outbox' }, `no callback is told: ${DAMAGED}`, about)
      return { why: { error: DAMAGED, pauseMs: null } }
    }
    const [entry] = open
    // A person has changed it by hand: the write decides anew which entry is next.
    if (!entry) return { seq: MOST_SEQ, removed }
    const { seq, callback } = entry
    if (!this.of.callbacks.includes(callback)) return { seq: seq - 1 }
    if (isLastEntry(entry) && !removed) return { why: { error: NOT_REMOVED, pauseMs: null } }
    const why = await this.call(one, entry)
    return why ? { why } : { seq, removed: isLastEntry(entry) ? removed : undefined }
  }

  /** Calls a callback as soon as there is a place. Undefined: it returned; otherwise the reason to let go of its outbox. */
  private async call(one: OpenDelivery, entry: OutboxEntry): Promise<LetGo | undefined> {
    const leave = await one.bulkhead.enter(() => {
      one.isAside = true
      this.onAside()
    })
    if (!leave) return 'uncalled'
    const { model, clock } = this.env
    one.claimedAtMs = clock.monotonicMs()
    try {
      const isSafe = one.lease.leftMs() >= model.settings.callbackTimeoutMs! + MORE_MS
      return isSafe && !this.stopping ? await this.callNow(one, entry) : 'uncalled'
    } finally {
      one.ranMs = clock.monotonicMs() - one.claimedAtMs
      leave()
    }
  }

  private async callNow({ id, document, outbox }: OpenDelivery, entry: OutboxEntry): Promise<LetGo | undefined> {
    const attempt = outbox.tries
    const { model, clock, observer, logger, lines } = this.env
    const { maxAttempts, callbackTimeoutMs } = model.settings
    const { seq, callback } = entry
    if (callback === 'delete') return undefined
    const about = { lifecycle: model.name, id, callback, seq }
    const reported = { ...about, attempt }
    if (attempt > maxAttempts) {
      const reason = `called ${numbered(attempt - 1, 'time')} without an end: it kills or outlives its replicas`
      observer.calledBack({ ...reported, outcome: 'parked', reason, ms: 0 })
      return { error: reason, pauseMs: null, isNoTry: true }
    }
    const startedMs = clock.monotonicMs()
    const controller = new AbortController()
    this.running.add(controller)
    let failure: { readonly error: unknown } | undefined
    try {
      const event = { ...entry, lifecycle: model.name, id, document: deepCopy(asBeforeRemoval(document, outbox)) }
      const call = { signal: controller.signal, attempt, log: withFields(logger, about) }
      await inTime(() => this.callbacks[callback]!(event, call), callbackTimeoutMs!, controller)
    } catch (error) {
      failure = { error }
    } finally {
      this.running.delete(controller)
    }
    const ms = clock.monotonicMs() - startedMs
    if (!failure) {
      observer.calledBack({ ...reported, outcome: 'told', reason: null, ms })
      return undefined
    }
    // It was asked to end because the replica stops: that doesn't count as a try.
    if (this.stopping && controller.signal.aborted) return 'uncalled'
    const known = recordedError(failure.error)
    const why = this.after(`${known.message}${causesText(known)}`, attempt)
    const outcome = why.pauseMs === null ? 'parked' : 'failed'
    const next = why.pauseMs === null ? 'it waits for a person (phaselock callbacks)' : `again in ${why.pauseMs} ms`
    const line = `callback ${callback} failed (${attempt} of ${maxAttempts}): ${why.error}; ${next}`
    lines[outcome === 'parked' ? 'error' : 'warn']({ kind: 'a callback failed', phase: entry.to }, line, about)
    observer.calledBack({ ...reported, outcome, reason: why.error, ms })
    return why
  }

  private after(error: string, attempt: number): Exclude<LetGo, string> {
    const { model, random } = this.env
    const { maxAttempts, backOff } = model.settings
    const kept = error.slice(0, 2_000)
    return { error: kept, pauseMs: attempt >= maxAttempts ? null : errorPauseMs(attempt, random(), backOff) }
  }
}

/** Gives a removed document the phase that it was removed from, because callbacks know only the phases of their lifecycle. */
function asBeforeRemoval(document: Document, { open }: Outbox): Document {
  const last = isRemovedPhase(document['phase']) ? open.at(-1) : undefined
  return last ? { ...document, phase: last.from } : document
}

/**
 * Returns a callback's result. Throws if the callback doesn't end in time: then its signal aborts, and the engine no longer waits for it. Time in
 * which the event loop stood still (another callback, or a step, computed) doesn't count: the answer may be there, unread. So the callback gets that
 * time in addition, up to `MORE_MS`.
 */
async function inTime(call: () => unknown, ms: number, controller: AbortController): Promise<unknown> {
  const { signal } = controller
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  signal.addEventListener('abort', () => reject(signal.reason))
  let timer: NodeJS.Timeout
  const waitFor = (waitMs: number, moreMs: number) => {
    const dueMs = systemClock.monotonicMs() + waitMs
    timer = setTimeout(() => {
      const stoodStillMs = Math.min(moreMs, systemClock.monotonicMs() - dueMs)
      if (stoodStillMs >= STOOD_STILL_MS) waitFor(stoodStillMs, moreMs - stoodStillMs)
      else controller.abort(new CallbackTimeout(ms))
    }, waitMs)
  }
  waitFor(ms, MORE_MS)
  try {
    return await Promise.race([Promise.resolve().then(call), aborted])
  } finally {
    clearTimeout(timer!)
    aborted.catch(() => undefined)
  }
}
