import type { Collection, Document } from 'mongodb'
import {
  type CallbackName,
  callbacksAfter,
  type Delivery,
  type DueKind,
  dueOutboxes,
  type EndKind,
  idKey,
  isLastEntry,
  LeaseAge,
  type Outbox,
  type Outboxes,
  type OutboxTime,
  outboxDue,
  outboxIn,
  removedPhase,
  takeOutboxes,
} from '../../../lock/index.js'
import type { LifecycleModel } from '../../model/model.js'
import { readProjection } from '../../model/settings.js'
import type { OutageLog } from '../../reporting/bounded-log.js'
import type { Callbacks } from '../../step/callbacks.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import { type CallIsolation, SUSPECT_MOST_MS } from './call-isolation.js'
import { CallbackInvoker, type DeliveryCall, type LaneName, outboxLeaseMs } from './callback-invoker.js'
import { nextTurn, OutboxWriter, within } from './outbox-writer.js'

/** The most documents with a recorded end that are kept in memory: looks find any others. */
const MOST_KEPT = 10_000
const MOST_SEQ = 1_000_000_000
/** The most outboxes held where calls are quick, more than are called at the same time: an eighth of the commands that 32 at a time take. */
const MOST_HELD = 250
/** If outboxes that were taken together are delivered within this time, twice the number is taken next; half of it after five times this time. */
const QUICK_MS = 100
const DAMAGED = 'progress.outbox.open holds something else than entries: mend it, or remove progress.outbox'
const NOT_REMOVED = 'it was removed, and somebody has given it another phase since: nobody is told that it is gone'

/** The outboxes of a lifecycle for some of its callbacks. */
export const outboxesOf = (model: LifecycleModel, collection: Collection, own: readonly CallbackName[]): Outboxes => ({
  ...{ collection, progress: model.settings.progress },
  ...{ callbacks: [...own, 'delete'], phases: [...model.phases.keys(), removedPhase(model.name)] },
})

export interface DelivererOptions {
  readonly env: Omit<LifecycleEnvironment, 'callbacks'>
  readonly callIsolation: CallIsolation
  /** The callbacks that the process has. */
  readonly callbacks: Callbacks
  readonly identity: string
  readonly outage: OutageLog
}

/** A document in hand: its delivery, and its call. */
interface OpenDelivery extends Delivery, DeliveryCall {
  readonly outbox: Outbox
  /** True if its call has lasted for longer than a quick one: it takes no room from others. */
  isAside: boolean
}

/**
 * Delivers the stored events of one lifecycle's documents to its callbacks: those that this replica has recorded immediately, and those that others
 * left behind (a crash, a pause after an error, a rule) when a look finds them.
 *
 * Invariants: a callback begins only while the document's outbox is held under this delivery's token, by local time too, and after the entry before
 * it was taken out. If it fails, its outbox is let go with the error and tried again after a pause. After `maxAttempts` it waits for a person, with
 * all entries that follow. So a callback that hangs or throws holds up its own document's callbacks, and takes a place for a moment ({@link Lane}).
 * It costs no other document anything. One that ends its process costs each document that is called beside it some tries, but not the last one
 * ({@link CallIsolation}).
 */
export class Deliverer {
  private readonly of: Outboxes
  private readonly projection: Document | undefined
  private readonly leaseMs: number
  /** The documents with an end recorded here whose outboxes aren't taken yet, by key. */
  private readonly stored = new Map<string, unknown>()
  /** The lanes with outboxes still to find, from a look or the search before. */
  private readonly toFind = new Set<LaneName>()
  /** Suspects in progress that may still end this process. */
  private suspectsInProgress = 0
  /** True if outboxes that others left behind go next, so that those recorded here don't keep them waiting. */
  private areOthersNext = false
  private readonly inProgress = new Map<string, OpenDelivery>()
  private readonly invoker: CallbackInvoker
  private readonly writer: OutboxWriter
  /** The most outboxes of the first lane that are held at the same time. */
  private most: number
  private readonly works = new Set<Promise<unknown>>()
  private taking: Promise<void> | undefined
  private batches = 0
  private stopping = false

  constructor(private readonly options: DelivererOptions) {
    const { env, callbacks } = options
    const { settings } = env.model
    const own = (settings.callbacks ?? []).filter((name) => callbacks[name])
    this.of = outboxesOf(env.model, env.collection, own)
    this.projection = readProjection(settings)
    this.leaseMs = outboxLeaseMs(env.model)
    this.invoker = new CallbackInvoker(env, callbacks)
    this.writer = new OutboxWriter(this.of, this.leaseMs, options)
    this.most = settings.concurrency
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
    if (this.stored.size < MOST_KEPT) this.stored.set(idKey(id), id)
    this.take()
  }

  /** Begins to deliver the events that a look has found. Returns immediately. */
  found(): void {
    this.toFind.add('first').add('again')
    this.take()
  }

  /** Resolves when nothing is being delivered, and nothing more is known to be due. */
  async settled(): Promise<void> {
    while (this.taking || this.works.size > 0) await Promise.all([this.taking, ...this.works])
  }

  /** Stops: running callbacks may finish within `graceMs`, then their signals abort. Undelivered events are left to other replicas. */
  async stop(graceMs: number, lastMs: number, wait: (ms: number) => Promise<void>): Promise<void> {
    this.stopping = true
    this.invoker.stop()
    await Promise.race([this.settled(), wait(graceMs)])
    this.invoker.abort()
    await Promise.race([this.settled(), wait(lastMs)])
  }

  private take(): void {
    if (this.taking || this.stopping) return
    // An end that was recorded just before this round ended saw it still under way, and is taken in another one.
    const over = (isDone: boolean) => {
      this.taking = undefined
      const mayTake = this.room('first') > 0 || this.options.callIsolation.alone
      if (isDone && mayTake && [...this.stored.keys()].some((key) => !this.inProgress.has(key))) this.take()
    }
    this.taking = this.takeAll().then(
      () => over(true),
      (error) => {
        this.options.outage.failed(error)
        over(false)
      },
    )
  }

  /** Takes outboxes while there is room, in each lane up to its number of places. */
  private async takeAll(): Promise<void> {
    // In the next turn, so that steps that end together are taken together.
    await nextTurn()
    // The suspect may be another lifecycle's, and nothing else would report its end here.
    while (this.options.callIsolation.alone && !this.stopping) await this.options.callIsolation.alone
    while (!this.stopping) {
      const own = [...this.stored].filter(([key]) => !this.inProgress.has(key)).slice(0, this.room('first'))
      const lanes = this.lanesToSearch()
      if (own.length > 0 && !(lanes.length > 0 && this.areOthersNext)) {
        for (const [key] of own) this.stored.delete(key)
        const ids = own.map(([, id]) => id)
        await this.deliver(ids, { justStored: true })
        this.areOthersNext = true
      } else if (lanes.length > 0) {
        this.areOthersNext = false
        let isMore = false
        for (const lane of lanes) isMore = (await this.takeFound(lane)) || isMore
        // The rest then waits for the end of a suspect, or for a look, unless another lane has got room in the meantime.
        if (!isMore && own.length === 0 && this.lanesToSearch().every((lane) => lanes.includes(lane))) return
      } else return
    }
  }

  private lanesToSearch(): readonly LaneName[] {
    return [...this.toFind].filter((lane) => this.room(lane) > 0)
  }

  /** The number of outboxes that may be taken now: 0 where there is no place for another call. */
  private room(lane: LaneName): number {
    const { isFull, passesOn } = this.invoker.lane(lane)
    if (this.options.callIsolation.alone || isFull) return 0
    const mostQuick = lane === 'first' ? this.most : this.options.env.model.settings.concurrency
    const most = passesOn ? Math.max(MOST_HELD, mostQuick) : mostQuick
    let held = 0
    for (const one of this.inProgress.values()) if (one.lane === lane && !one.isAside) held += 1
    return Math.max(0, most - held)
  }

  /** Takes outboxes that no process holds, while there is room; in the `again` lane, suspects also. True if there may be more immediately. */
  private async takeFound(lane: LaneName): Promise<boolean> {
    const room = this.room(lane)
    const due = await this.due(lane === 'first' ? 'untried' : 'failed', room)
    // If none is taken, other replicas were first, or the outboxes can't be taken yet: a later look finds the rest.
    const { settledCount } = due.length > 0 ? await this.deliver(due.map(({ id }) => id)) : { settledCount: 0 }
    const isMore = due.length === room && settledCount > 0
    if (lane === 'again') await this.takeSuspects()
    if (!isMore && (lane === 'first' || this.suspectsInProgress === 0)) this.toFind.delete(lane)
    return isMore
  }

  private due(kind: DueKind, limit: number) {
    const { env } = this.options
    const inProgress = [...this.inProgress.values()].filter(({ isAside }) => !isAside)
    const skipped = [...env.refusing.refusedIds(), ...inProgress.map(({ id }) => id)]
    return dueOutboxes(this.of, this.time(), limit, { kind, skipped })
  }

  private async takeSuspects(): Promise<void> {
    const { callIsolation, env } = this.options
    const { concurrency, maxAttempts } = env.model.settings
    const room = this.room('again')
    if (room === 0) return
    const due = await this.due('suspect', room)
    const isLast = ({ tries }: { tries: number }) => tries + 1 >= maxAttempts
    const some: unknown[] = []
    let most = concurrency
    for (const one of due) {
      most = Math.min(most, isLast(one) ? 1 : Math.max(1, Math.floor(concurrency / 4 ** (one.tries - 1))))
      if (callIsolation.alone || callIsolation.inProgress + some.length >= most) break
      some.push(one.id)
    }
    if (some.length === 0) return
    const end = isLast(due[0]!) ? callIsolation.isolate() : undefined
    const add = (count: number) => {
      callIsolation.inProgress += count
      this.suspectsInProgress += count
      if (callIsolation.inProgress === 0) end?.()
    }
    add(some.length)
    let taken = 0
    try {
      const { carried } = await this.deliver(some, { areSuspects: true })
      taken = carried.length
      for (const one of carried)
        void within(
          SUSPECT_MOST_MS,
          one.catch(() => undefined),
        ).then(() => {
          add(-1)
          if (this.toFind.has('again')) this.take()
        })
    } finally {
      add(taken - some.length)
    }
  }

  /** Takes and delivers outboxes. `met`: the number that it has taken, or knows that it can't deliver; `carried`: the deliveries under way. */
  private async deliver(
    ids: readonly unknown[],
    { justStored = false, areSuspects = false } = {},
  ): Promise<{ readonly settledCount: number; readonly carried: readonly Promise<void>[] }> {
    const { env, identity, outage } = this.options
    const startedMs = env.clock.monotonicMs()
    const isMost = ids.length >= this.room('first')
    const token = `${identity}!${++this.batches}`
    const how = {
      token,
      leaseMs: this.leaseMs,
      justStored,
      areSuspects,
      time: this.time(),
      projection: this.projection,
    }
    const { documents, unreadable, refused } = await takeOutboxes(this.of, ids, how)
    outage.succeeded()
    this.writer.refused(refused)
    for (const { id, error } of unreadable)
      this.work(
        this.writer.letGo({ id, token }, { error: `the driver can't read it: ${error.message}`, pauseMs: null }),
      )
    const carried = documents.map((document) => {
      const id: unknown = document['_id']
      const outbox = outboxIn(document[this.of.progress])
      const one: OpenDelivery = {
        ...{ id, token, document, outbox, isSuspect: areSuspects, isAside: false },
        lease: new LeaseAge(env.clock, startedMs, this.leaseMs),
        lane: outbox.tries > 1 ? 'again' : 'first',
        onAside: () => {
          one.isAside = true
          this.takeMore()
        },
      }
      const key = idKey(id)
      this.inProgress.set(key, one)
      const done = this.carry(one).finally(() => {
        if (this.inProgress.get(key) === one) this.inProgress.delete(key)
        this.takeMore()
      })
      this.work(done)
      return done
    })
    void Promise.allSettled(carried).then(() => this.adapt(isMost, env.clock.monotonicMs() - startedMs))
    return { settledCount: documents.length + unreadable.length + refused.length, carried }
  }

  private takeMore(): void {
    if (this.stored.size > 0 || this.toFind.size > 0) this.take()
  }

  /**
   * Adapts the number of outboxes to hold, after those that were taken together have been delivered.
   * @param isMost true if no more of them could be held.
   * @param ms the time that it took.
   */
  private adapt(isMost: boolean, ms: number): void {
    const { concurrency } = this.options.env.model.settings
    if (ms > 5 * QUICK_MS) this.most = Math.max(concurrency, Math.floor(this.most / 2))
    else if (ms <= QUICK_MS && isMost) this.most = Math.max(concurrency, Math.min(MOST_HELD, this.most * 2))
  }

  /** Delivers one document's entries to their callbacks, one after the other, up to the first callback that this process doesn't have. */
  private async carry(one: OpenDelivery): Promise<void> {
    const { clock, model } = this.options.env
    const { open, tries, isDamaged } = one.outbox
    const isRemoved = one.document['phase'] === removedPhase(model.name)
    if (isDamaged) {
      const about = { lifecycle: model.name, id: one.id }
      this.options.env.lines.error({ kind: 'damaged outbox' }, `no callback is told: ${DAMAGED}`, about)
      return this.writer.letGo(one, { error: DAMAGED, pauseMs: null })
    }
    const others = open.findIndex(({ callback }) => !this.of.callbacks.includes(callback))
    const own = others < 0 ? open : open.slice(0, others)
    // A person has changed it by hand: the write decides anew which entry is next.
    const removed = open.length === 0 && isRemoved ? removedPhase(model.name) : undefined
    if (own.length === 0)
      await this.writer.acknowledge({ ...one, seq: (open[0]?.seq ?? MOST_SEQ) - 1, goesOn: false, removed })
    for (const [i, entry] of own.entries()) {
      const isLast = isLastEntry(entry)
      if (isLast && !isRemoved) return this.writer.letGo(one, { error: NOT_REMOVED, pauseMs: null })
      one.isAside = false
      const why = await this.invoker.call(one, entry, i === 0 ? tries : 1)
      if (why) return this.writer.letGo(one, why)
      const sentAtMs = clock.monotonicMs()
      const { id, token } = one
      const removed = isLast ? removedPhase(model.name) : undefined
      if (
        !(await this.writer.acknowledge({ id, token, seq: entry.seq, goesOn: !isLast && i < own.length - 1, removed }))
      )
        return
      one.lease.renewed(sentAtMs)
    }
  }

  private work(promise: Promise<unknown>): void {
    const done = promise.catch((error) => this.options.outage.failed(error)).finally(() => this.works.delete(done))
    this.works.add(done)
  }
}
