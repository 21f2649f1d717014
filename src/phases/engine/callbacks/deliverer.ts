import type { Collection, Document } from 'mongodb'
import {
  type CallbackName,
  callbacksAfter,
  type Delivery,
  dueOutboxes,
  type EndKind,
  idKey,
  isLastEntry,
  type LetGo,
  letGoOutbox,
  type Outboxes,
  type OutboxTime,
  outboxDue,
  outboxIn,
  type Refused,
  removedPhase,
  type Told,
  takeOutboxes,
  toldOutboxes,
} from '../../../lock/index.js'
import type { Callbacks } from '../../callbacks.js'
import type { LifecycleModel } from '../../definition/model.js'
import { readProjection } from '../../definition/settings.js'
import type { LifecycleEnvironment } from '../environment.js'
import type { OutageLog } from '../report/outage-log.js'
import { type Callee, Caller, outboxLeaseMs } from './caller.js'

/** More than these aren't kept in memory: looks find them. */
const MOST_KEPT = 10_000
/** As long as what a look has shown. */
const VALID_MS = 5_000
const MOST_SEQ = 1_000_000_000
/** Outboxes that are held where calls are quick, more than are called at once: an eighth of the commands that 32 at a time take. */
const MOST_HELD = 250
/** If what was taken together has been told within this, twice as much is taken next time; half, after five times as long. */
const QUICK_MS = 100
/** What has been told waits so long for the group before it to be taken out. */
const GATHERS_MOST_MS = 500
/** So long a suspect is alone: then others may come, so that a long call stops nobody. */
const ALONE_MOST_MS = 1_500
const DAMAGED = 'progress.outbox.open holds something else than entries: mend it, or remove progress.outbox'
const NOT_REMOVED = 'it was removed, and somebody has given it another phase since: nobody is told that it is gone'

/** The outboxes of a lifecycle: of some of its callbacks. */
export const outboxesOf = (model: LifecycleModel, collection: Collection, own: readonly CallbackName[]): Outboxes => ({
  ...{ collection, progress: model.settings.progress },
  ...{ callbacks: [...own, 'delete'], phases: [...model.phases.keys(), removedPhase(model.name)] },
})

/**
 * Documents in hand, of all lifecycles of a replica, whose outbox somebody took before and never let go of: the call may have ended that process, and so
 * made suspects of everything else that it had in hand. As many are called at once as each of them allows: on its second try `concurrency`, then a quarter
 * of that with each further one, at least one. On its last try a document is called alone: no other suspect is in hand, and nothing else
 * begins before its call has ended, for 1.5 s at most. So only what ends its process again and again is given up.
 */
export class Suspects {
  inHand = 0
  /** Set while one is alone. */
  alone: Promise<void> | undefined

  /** Until `end` is called, and not for long. */
  isolate(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>()
    const end = () => {
      clearTimeout(timer)
      if (this.alone === promise) this.alone = undefined
      resolve()
    }
    const timer = setTimeout(end, ALONE_MOST_MS).unref()
    this.alone = promise
    return end
  }
}

export interface DelivererOptions {
  readonly env: Omit<LifecycleEnvironment, 'callbacks'>
  readonly suspects: Suspects
  /** What the process has. */
  readonly callbacks: Callbacks
  readonly identity: string
  readonly outage: OutageLog
}

/** A document in hand: its delivery, and until when its outbox is held. */
type InHand = Delivery & Callee

/**
 * Tells the callbacks of one lifecycle what became of its documents, after that is stored: what this replica has recorded at once, and what others
 * left behind (a crash, a pause after an error, a rule) when a look finds it.
 *
 * Invariants: a callback begins only while the document's outbox is held under this delivery's token, by local time too, and after the entry
 * before it was taken out. What fails is let go with its error and tried again after a pause; after `maxAttempts` it waits for a person, with all that
 * follows it. So a callback that hangs or throws costs its own document's callbacks, a place for `callbackTimeout`, and nobody else anything. One that ends its
 * process costs each document that is called beside it some tries, but not the last one ({@link Suspects}).
 */
export class Deliverer {
  private readonly of: Outboxes
  private readonly projection: Document | undefined
  private readonly leaseMs: number
  /** Recorded here, and not yet taken. */
  private readonly stored = new Map<string, unknown>()
  private isFound = false
  /** What others left behind goes next, so that it isn't kept waiting by what is recorded here. */
  private areOthersNext = false
  private readonly inHand = new Map<string, InHand>()
  private readonly caller: Caller
  /** So many outboxes are held at once. */
  private most: number
  private readonly works = new Set<Promise<unknown>>()
  private readonly told: Told[] = []
  /** The last group that is being taken out, and the one that gathers meanwhile. */
  private takingOut: Promise<unknown> = Promise.resolve()
  private gathering: Promise<unknown> | undefined
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
    this.caller = new Caller(env, callbacks)
    this.most = settings.concurrency
  }

  /** What a look asks for: whether anything is to be told. */
  match(): Document | undefined {
    if (this.stopping) return undefined
    const refusing = this.options.env.refusing.refusedIds()
    return { ...outboxDue(this.of, this.time()), ...(refusing.length > 0 && { _id: { $nin: refusing } }) }
  }

  /** Between a step of the server's clock and the look that finds it, nobody's hold on an outbox ends, nor before that is confirmed. */
  private time(): OutboxTime {
    const { serverClock, serverNow } = this.options.env
    const now = serverNow()
    const seen = serverClock.now()
    return {
      now,
      heldMs: serverClock.hold()?.ms,
      validUntil: seen && new Date(seen.getTime() + VALID_MS),
    }
  }

  /** A step's end was recorded: its callbacks, if it has any, are told now. Returns at once. */
  recorded(id: unknown, end: EndKind): void {
    if (callbacksAfter(this.options.env.model.settings, end).length === 0) return
    if (this.stored.size < MOST_KEPT) this.stored.set(idKey(id), id)
    this.take()
  }

  /** A look has found something to tell. Returns at once. */
  found(): void {
    this.isFound = true
    this.take()
  }

  /** Resolves when nothing is being told, and nothing more is known to be due. */
  async settled(): Promise<void> {
    while (this.taking || this.works.size > 0) await Promise.all([this.taking, ...this.works])
  }

  /** Running callbacks may finish within `graceMs`, then their signals abort; what wasn't told is left to others. */
  async stop(graceMs: number, lastMs: number, wait: (ms: number) => Promise<void>): Promise<void> {
    this.stopping = true
    this.caller.stop()
    await Promise.race([this.settled(), wait(graceMs)])
    this.caller.abort()
    await Promise.race([this.settled(), wait(lastMs)])
  }

  private take(): void {
    if (this.taking || this.stopping) return
    // What was recorded while the round ended, and found it still under way, is taken in another.
    const over = (isDone: boolean) => {
      this.taking = undefined
      const mayTake = this.room > 0 || this.options.suspects.alone
      if (isDone && mayTake && [...this.stored.keys()].some((key) => !this.inHand.has(key))) this.take()
    }
    this.taking = this.takeAll().then(
      () => over(true),
      (error) => {
        this.options.outage.failed(error)
        over(false)
      },
    )
  }

  /** As long as there is room: one place for each document, as many as handlers have. */
  private async takeAll(): Promise<void> {
    // In the next turn, so that what ends together is taken together.
    await nextTurn()
    // It may be another lifecycle's, of whose end nobody else would tell this one.
    while (this.options.suspects.alone && !this.stopping) await this.options.suspects.alone
    while (!this.stopping && this.room > 0) {
      const { room } = this
      const own = [...this.stored].filter(([key]) => !this.inHand.has(key)).slice(0, room)
      if (own.length > 0 && !(this.isFound && this.areOthersNext)) {
        for (const [key] of own) this.stored.delete(key)
        const ids = own.map(([, id]) => id)
        await this.deliver(ids, { justStored: true })
        this.areOthersNext = true
      } else if (this.isFound) {
        this.areOthersNext = false
        // What is left then waits for the end of a suspect, or for a look.
        if (!(await this.takeFound(room)) && own.length === 0) return
      } else return
    }
  }

  /** How many outboxes may be taken now: none where there is no place for another call. */
  private get room(): number {
    return this.caller.isFull || this.options.suspects.alone ? 0 : Math.max(0, this.most - this.inHand.size)
  }

  /** What nobody has, as far as there is room, and beside it suspects. Whether there may be more at once. */
  private async takeFound(room: number): Promise<boolean> {
    const { env } = this.options
    const skipped = [...env.refusing.refusedIds(), ...[...this.inHand.values()].map(({ id }) => id)]
    const due = await dueOutboxes(this.of, this.time(), room, { skipped })
    // Others were first, or it isn't to be had yet: a later look finds what is left.
    const { met } = due.length > 0 ? await this.deliver(due.map(({ id }) => id)) : { met: 0 }
    const isMore = due.length === room && met > 0
    await this.takeSuspects(skipped)
    this.isFound = isMore || [...this.inHand.values()].some(({ isSuspect }) => isSuspect)
    return isMore
  }

  private async takeSuspects(skipped: readonly unknown[]): Promise<void> {
    const { suspects, env } = this.options
    const { concurrency, maxAttempts } = env.model.settings
    if (this.room === 0) return
    const due = await dueOutboxes(this.of, this.time(), Math.min(this.room, concurrency), {
      skipped,
      areSuspects: true,
    })
    const isLast = ({ tries }: { tries: number }) => tries + 1 >= maxAttempts
    const some: unknown[] = []
    let most = concurrency
    for (const one of due) {
      most = Math.min(most, isLast(one) ? 1 : Math.max(1, Math.floor(concurrency / 4 ** (one.tries - 1))))
      if (suspects.alone || suspects.inHand + some.length >= most) break
      some.push(one.id)
    }
    if (some.length === 0) return
    const end = isLast(due[0]!) ? suspects.isolate() : undefined
    suspects.inHand += some.length
    const over = (count: number) => {
      suspects.inHand -= count
      if (suspects.inHand === 0) end?.()
    }
    let taken = 0
    try {
      const { carried } = await this.deliver(some, { areSuspects: true })
      taken = carried.length
      for (const one of carried)
        void one.then(
          () => over(1),
          () => over(1),
        )
    } finally {
      over(some.length - taken)
    }
  }

  /** How many it has got, or knows not to be for it, and what is under way for those that it has got. */
  private async deliver(
    ids: readonly unknown[],
    { justStored = false, areSuspects = false } = {},
  ): Promise<{ readonly met: number; readonly carried: readonly Promise<void>[] }> {
    const { env, identity, outage } = this.options
    const startedMs = env.clock.monotonicMs()
    const isMost = this.inHand.size + ids.length >= this.most
    const token = `${identity}!${++this.batches}`
    const leaseUntilMs = startedMs + this.leaseMs
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
    this.refused(refused)
    for (const { id, error } of unreadable)
      this.work(this.letGo({ id, token }, { error: `the driver can't read it: ${error.message}`, pauseMs: null }))
    const carried = documents.map((document) => {
      const one: InHand = { id: document['_id'], token, document, leaseUntilMs, isSuspect: areSuspects }
      const key = idKey(one.id)
      this.inHand.set(key, one)
      const done = this.carry(one).finally(() => {
        this.inHand.delete(key)
        if (this.stored.size > 0 || this.isFound) this.take()
      })
      this.work(done)
      return done
    })
    void Promise.allSettled(carried).then(() => this.adapt(isMost, env.clock.monotonicMs() - startedMs))
    return { met: documents.length + unreadable.length + refused.length, carried }
  }

  /** After what was taken together has been told within a time. @param isMost it was as much as could be held */
  private adapt(isMost: boolean, ms: number): void {
    const { concurrency } = this.options.env.model.settings
    if (ms > 5 * QUICK_MS) this.most = Math.max(concurrency, Math.floor(this.most / 2))
    else if (ms <= QUICK_MS && isMost) this.most = Math.max(concurrency, Math.min(MOST_HELD, this.most * 2))
  }

  /** Tells one document's callbacks, one after the other, up to one that this process doesn't have. */
  private async carry(one: InHand): Promise<void> {
    const { clock, model } = this.options.env
    const { open, tries, isDamaged } = outboxIn(one.document[this.of.progress])
    const isRemoved = one.document['phase'] === removedPhase(model.name)
    if (isDamaged) {
      const about = { lifecycle: model.name, id: one.id }
      this.options.env.lines.error({ kind: 'damaged outbox' }, `no callback is told: ${DAMAGED}`, about)
      return this.letGo(one, { error: DAMAGED, pauseMs: null })
    }
    const others = open.findIndex(({ callback }) => !this.of.callbacks.includes(callback))
    const own = others < 0 ? open : open.slice(0, others)
    // A person has changed it by hand: what is to be told next is judged anew.
    const removed = open.length === 0 && isRemoved ? removedPhase(model.name) : undefined
    if (own.length === 0) await this.takeOut({ ...one, seq: (open[0]?.seq ?? MOST_SEQ) - 1, goesOn: false, removed })
    for (const [i, entry] of own.entries()) {
      const isLast = isLastEntry(entry)
      if (isLast && !isRemoved) return this.letGo(one, { error: NOT_REMOVED, pauseMs: null })
      const why = await this.caller.call(one, entry, i === 0 ? tries : 1)
      if (why) return this.letGo(one, why)
      const leaseUntilMs = clock.monotonicMs() + this.leaseMs
      const { id, token } = one
      const removed = isLast ? removedPhase(model.name) : undefined
      if (!(await this.takeOut({ id, token, seq: entry.seq, goesOn: !isLast && i < own.length - 1, removed }))) return
      one.leaseUntilMs = leaseUntilMs
    }
  }

  /** The last of a document together with those of others that end in this turn of the event loop. Whether its outbox goes on to be held. */
  private async takeOut(one: Told): Promise<boolean> {
    if (one.goesOn) return this.takenOut([one])
    this.told.push(one)
    this.gathering ??= within(GATHERS_MOST_MS, this.takingOut).then(() => {
      this.gathering = undefined
      return this.takenOut(this.told.splice(0))
    })
    this.takingOut = this.gathering
    await this.gathering
    return false
  }

  private async takenOut(all: readonly Told[]): Promise<boolean> {
    try {
      const { matched, refused } = await toldOutboxes(this.of, all, this.leaseMs)
      this.refused(refused)
      return matched === all.length
    } catch (error) {
      this.options.outage.failed(error) // the leases run out, and it is told again
      return false
    }
  }

  private async letGo(one: Delivery, why: LetGo): Promise<void> {
    try {
      await letGoOutbox(this.of, one, why)
    } catch (error) {
      this.options.outage.failed(error) // its lease runs out
    }
  }

  private refused(all: readonly Refused[]): void {
    for (const one of all) {
      this.options.env.refusing.add(one.id)
      this.options.env.broken.refused(one)
    }
  }

  private work(promise: Promise<unknown>): void {
    const done = promise.catch((error) => this.options.outage.failed(error)).finally(() => this.works.delete(done))
    this.works.add(done)
  }
}

/** Resolves in the turn after a work has ended, or after a time: an owner may have locked one of its documents. */
const within = (ms: number, work: Promise<unknown>) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    void work.then(() => {
      clearTimeout(timer)
      setImmediate(resolve)
    })
  })

const nextTurn = () => new Promise((resolve) => setImmediate(resolve))
