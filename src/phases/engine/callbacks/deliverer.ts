import type { Collection, Document } from 'mongodb'
import { Batcher } from '../../../concurrency/index.js'
import {
  type CallbackName,
  callbacksAfter,
  type DeliveryEnd,
  type DueKind,
  dueOutboxes,
  type EndKind,
  endDeliveries,
  idKey,
  LeaseAge,
  type Outboxes,
  type OutboxTime,
  outboxDue,
  outboxIn,
  type Refused,
  removedPhase,
  takeOutboxes,
} from '../../../lock/index.js'
import { sleep } from '../../../time/index.js'
import type { LifecycleModel } from '../../model/model.js'
import { readProjection } from '../../model/settings.js'
import type { OutageLog } from '../../reporting/bounded-log.js'
import type { Callbacks } from '../../step/callbacks.js'
import { ALONE_MOST_MS, type CrashIsolation, type IsolationSettings } from '../claim/crash-isolation.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import { Bulkhead } from './bulkhead.js'
import { CallbackInvoker, type OpenDelivery, outboxLeaseMs } from './callback-invoker.js'

/** The most documents with a recorded end that are kept in memory: looks find any others. */
const MOST_KEPT = 10_000
/** The longest time that ends wait for those before them to be written: an owner may have locked one of their documents. */
const GATHERS_MOST_MS = 500
/** The interval at which recorded ends that isolation keeps waiting are tried again. */
const ISOLATED_RETRY_MS = 50

/** The outboxes of a lifecycle for some of its callbacks. */
export const outboxesOf = (model: LifecycleModel, collection: Collection, own: readonly CallbackName[]): Outboxes => ({
  ...{ collection, progress: model.settings.progress },
  ...{ callbacks: [...own, 'delete'], phases: [...model.phases.keys(), removedPhase(model.name)] },
})

export interface DelivererOptions {
  readonly env: Omit<LifecycleEnvironment, 'callbacks'>
  readonly isolation: CrashIsolation
  /** The callbacks that the process has. */
  readonly callbacks: Callbacks
  readonly identity: string
  readonly outage: OutageLog
}

/**
 * Delivers the stored events of one lifecycle's documents to its callbacks: those that this replica has recorded immediately, and those that others
 * left behind (a crash, a pause after an error, a rule) when a look finds them.
 *
 * Invariants: a callback begins only while the document's outbox is held under this delivery's token, by local time too, and after the entry before
 * it was taken out. A delivery is one entry: taken, called, and taken out or let go. If the call fails, it is tried again after a pause. After
 * `maxAttempts` it waits for a person, with all entries that follow. So a callback that hangs or throws holds up its own document's callbacks, and
 * takes a place for a moment ({@link Bulkhead}). One that ends its process costs each document that is held beside it some claims or tries, but not
 * the last one ({@link CrashIsolation}).
 */
export class Deliverer {
  private readonly of: Outboxes
  private readonly projection: Document | undefined
  private readonly leaseMs: number
  private readonly isolated: IsolationSettings
  /** The documents with an entry known to be next whose outboxes aren't taken yet, by key. */
  private readonly stored = new Map<string, unknown>()
  /** The kinds of outboxes that are still to find, from a look or the search before. */
  private readonly toFind = new Set<DueKind>()
  private readonly inProgress = new Map<string, OpenDelivery>()
  /** First tries don't wait for calls that have failed, or hung, before. */
  private readonly bulkheads: { readonly first: Bulkhead; readonly again: Bulkhead }
  private readonly invoker: CallbackInvoker
  /** The ends of deliveries. One that can't be written is reported, and its outbox stays held until its lease ends: then it is delivered again. */
  private readonly ends: Batcher<DeliveryEnd>
  private readonly works = new Set<Promise<unknown>>()
  /** Where outboxes to take come from. Each is the first to get room by turns. */
  private readonly sources: (() => Promise<boolean>)[]
  private suspectTimer: NodeJS.Timeout | undefined
  private taking: Promise<void> | undefined
  private isAskedAgain = false
  private takes = 0
  private stopping = false

  constructor(private readonly options: DelivererOptions) {
    const { env, callbacks, isolation } = options
    const { settings } = env.model
    const { concurrency } = settings
    const own = (settings.callbacks ?? []).filter((name) => callbacks[name])
    this.of = outboxesOf(env.model, env.collection, own)
    this.projection = readProjection(settings)
    this.leaseMs = outboxLeaseMs(env.model)
    this.invoker = new CallbackInvoker(env, callbacks, this.of, () => this.takeMore())
    this.bulkheads = { first: new Bulkhead(concurrency), again: new Bulkhead(concurrency) }
    this.ends = new Batcher(
      (ends, { back }) => this.write(ends, back),
      () => 1,
    )
    const kinds: readonly DueKind[] = ['untried', 'failed', 'suspect']
    this.sources = [() => this.takeStored(), ...kinds.map((kind) => () => this.takeFound(kind))]
    this.isolated = { ...settings, maxClaims: settings.maxAttempts }
    isolation.join(() => this.isolatedClaims(), this.isolated)
  }

  /** The filter of outboxes to deliver, for a look's question; undefined: the replica stops. */
  match(): Document | undefined {
    if (this.stopping) return undefined
    const refusing = this.options.env.refusing.refusedIds()
    return { ...outboxDue(this.of, this.time()), ...(refusing.length > 0 && { _id: { $nin: refusing } }) }
  }

  /** The server's time. From a step of its clock until a look finds it, and then until the step is confirmed, no hold on an outbox ends. */
  private time(): OutboxTime {
    const { serverClock, serverNow } = this.options.env
    const now = serverNow()
    return {
      now,
      heldMs: serverClock.hold()?.ms,
      validUntil: serverClock.validUntil(),
    }
  }

  /** Begins to deliver the recorded end of a step to its callbacks, if it has any. Returns immediately. */
  recorded(id: unknown, end: EndKind): void {
    if (callbacksAfter(this.options.env.model.settings, end).length === 0) return
    this.store(id)
    this.take()
  }

  private store(id: unknown): void {
    if (this.stored.size < MOST_KEPT) this.stored.set(idKey(id), id)
  }

  /** Begins to deliver the events that a look has found. Returns immediately. */
  found(): void {
    this.toFind.add('untried').add('failed').add('suspect')
    this.take()
  }

  /** Resolves when nothing is being delivered, and nothing more is known to be due. */
  async settled(): Promise<void> {
    while (this.taking || this.works.size > 0) await Promise.all([this.taking, ...this.works])
  }

  /** Stops: running callbacks may finish within `graceMs`, then their signals abort. Undelivered events are left to other replicas. */
  async stop(graceMs: number, lastMs: number, wait: (ms: number) => Promise<void>): Promise<void> {
    this.stopping = true
    clearTimeout(this.suspectTimer)
    this.invoker.stop()
    for (const bulkhead of Object.values(this.bulkheads)) bulkhead.open()
    await Promise.race([this.settled(), wait(graceMs)])
    this.invoker.abort()
    await Promise.race([this.settled(), wait(lastMs)])
  }

  private take(): void {
    this.isAskedAgain = true
    if (this.taking || this.stopping) return
    this.taking = this.takeAll()
      .catch((error) => {
        this.isAskedAgain = false
        this.options.outage.failed(error)
      })
      .finally(() => {
        this.taking = undefined
        if (this.isAskedAgain) this.take() // since the last source was asked
      })
  }

  /** Takes outboxes while there is room. Those that wait only for isolation are waited for, the others for the end of a call or a look. */
  private async takeAll(): Promise<void> {
    // In the next turn, so that steps that end together are taken together.
    await new Promise<void>((resolve) => setImmediate(resolve))
    let isMore = true
    while (!this.stopping && (isMore || this.isAskedAgain || this.isKeptWaiting)) {
      if (!isMore && !this.isAskedAgain) await sleep(ISOLATED_RETRY_MS)
      this.isAskedAgain = false
      isMore = false
      for (const source of this.sources) isMore = (await source()) || isMore
      this.sources.push(this.sources.shift()!)
    }
  }

  /** True if recorded ends wait because a suspect has to be alone. */
  private get isKeptWaiting(): boolean {
    return this.stored.size > 0 && !this.options.isolation.isOpen
  }

  /** Takes outboxes of recorded ends, as long as there is room. True if there may be more. */
  private async takeStored(): Promise<boolean> {
    const room = this.options.isolation.isOpen ? this.room('stored') : 0
    const ids: unknown[] = []
    for (const [key, id] of this.stored) {
      if (ids.length >= room) break
      if (this.inProgress.has(key)) continue
      this.stored.delete(key)
      ids.push(id)
    }
    const untried = ids.map((id) => ({ id, tries: 0 }))
    await this.deliver(untried, 'stored')
    return ids.length > 0
  }

  /** Takes outboxes that no process holds any more, while there is room. True if there may be more immediately. */
  private async takeFound(kind: DueKind): Promise<boolean> {
    const { env, isolation } = this.options
    const mayTake = this.toFind.has(kind) && (kind === 'suspect' || isolation.isOpen)
    const room = mayTake ? this.room(kind) : 0
    if (room === 0) return false
    this.toFind.delete(kind) // a look may find more of it in the meantime
    const due = await dueOutboxes(this.of, this.time(), room, { kind, skipped: env.refusing.refusedIds() })
    // If none is taken, other replicas were first, or the outboxes can't be taken yet: a later look finds the rest.
    const taken = await this.deliver(due, kind)
    const isMore = taken > 0 && due.length === room
    if (isMore) this.toFind.add(kind)
    if (kind === 'suspect') this.findSuspectsAgain(taken < due.length)
    return isMore
  }

  /** Looks for suspects again as soon as isolation may have room for those that it has refused. */
  private findSuspectsAgain(isAnyLeft: boolean): void {
    clearTimeout(this.suspectTimer)
    if (!isAnyLeft || this.stopping) return
    const again = () => {
      this.toFind.add('suspect')
      this.take()
    }
    this.suspectTimer = setTimeout(again, (this.options.isolation.againInMs || ALONE_MOST_MS) + 1).unref()
  }

  /** The number of outboxes that may be taken now: 0 where there is no place for another call. */
  private room(kind: DueKind | 'stored'): number {
    const bulkhead = this.bulkheadOf(kind)
    let held = 0
    for (const one of this.inProgress.values()) if (one.bulkhead === bulkhead && !one.isAside) held += 1
    return bulkhead.prefetch.toClaim(held)
  }

  private bulkheadOf(kind: DueKind | 'stored'): Bulkhead {
    return kind === 'failed' || kind === 'suspect' ? this.bulkheads.again : this.bulkheads.first
  }

  /** The deliveries whose calls may still end this process: one that hasn't within 1.5 s hangs. */
  private *isolatedClaims() {
    const sinceMs = this.options.env.clock.monotonicMs() - ALONE_MOST_MS
    for (const { claimedAtMs, isSuspect, outbox } of this.inProgress.values())
      if (claimedAtMs > sinceMs) yield { claims: isSuspect ? outbox.tries : 1, claimedAtMs }
  }

  /**
   * Takes outboxes, as far as isolation admits them, and begins their deliveries.
   * @returns the number that it has taken, or knows that it can't deliver
   */
  private async deliver(
    due: readonly { readonly id: unknown; readonly tries: number }[],
    kind: DueKind | 'stored',
  ): Promise<number> {
    const { env, identity, isolation, outage } = this.options
    const isSuspect = kind === 'suspect'
    const admission = isolation.forClaim(this.isolated, 0)
    try {
      const ids = due.filter(({ tries }) => admission.takes(isSuspect ? tries + 1 : 1)).map(({ id }) => id)
      if (ids.length === 0) return 0
      const claimedAtMs = env.clock.monotonicMs()
      const token = `${identity}!${++this.takes}`
      const { leaseMs, projection } = this
      const justStored = kind === 'stored'
      const how = { token, leaseMs, justStored, areSuspects: isSuspect, time: this.time(), projection }
      const { documents, unreadable, refused } = await takeOutboxes(this.of, ids, how)
      outage.succeeded()
      this.refused(refused)
      for (const { id, error } of unreadable)
        this.work(
          this.ends.ask({ id, token, why: { error: `the driver can't read it: ${error.message}`, pauseMs: null } }),
        )
      this.bulkheadOf(kind).prefetch.adapt()
      for (const document of documents) {
        const outbox = outboxIn(document[this.of.progress])
        const bulkhead = outbox.tries > 1 ? this.bulkheads.again : this.bulkheads.first
        const lease = new LeaseAge(env.clock, claimedAtMs, leaseMs)
        const held = { claimedAtMs, lease, ranMs: 0, isAside: false }
        this.work(this.carry({ id: document['_id'], token, document, outbox, isSuspect, bulkhead, ...held }))
      }
      return documents.length + unreadable.length + refused.length
    } finally {
      isolation.over(admission)
    }
  }

  private takeMore(): void {
    if (this.stored.size > 0 || this.toFind.size > 0) this.take()
  }

  /** Carries out one delivery, to its recorded end. */
  private async carry(one: OpenDelivery): Promise<void> {
    const { id, token, isSuspect, outbox, bulkhead, claimedAtMs } = one
    const { clock } = this.options.env
    const key = idKey(id)
    this.inProgress.set(key, one)
    try {
      const end = await this.invoker.deliver(one)
      await this.ends.ask({ id, token, isSuspect, ...end })
      const next = outbox.open[1]?.callback
      if ('seq' in end && next && this.of.callbacks.includes(next)) this.store(id)
    } finally {
      bulkhead.prefetch.recorded(clock.monotonicMs() - claimedAtMs - one.ranMs)
      if (this.inProgress.get(key) === one) this.inProgress.delete(key)
      this.options.isolation.released()
      if (isSuspect) this.toFind.add('suspect') // others may have waited for its end
      this.takeMore()
    }
  }

  /** Writes ends that came in one turn of the event loop, or while those before them were written. */
  private async write(ends: readonly DeliveryEnd[], back: () => void): Promise<void> {
    const timer = setTimeout(back, GATHERS_MOST_MS)
    try {
      const { refused } = await endDeliveries(this.of, ends)
      this.refused(refused)
    } finally {
      clearTimeout(timer)
    }
  }

  private refused(all: readonly Refused[]): void {
    const { refusing, broken } = this.options.env
    for (const one of all) {
      refusing.add(one.id)
      broken.refused(one)
    }
  }

  private work(promise: Promise<unknown>): void {
    const done = promise.catch((error) => this.options.outage.failed(error)).finally(() => this.works.delete(done))
    this.works.add(done)
  }
}
