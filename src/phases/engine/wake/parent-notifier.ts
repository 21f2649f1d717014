import type { Collection, Db } from 'mongodb'
import { learnSharding, protocolCollection } from '../../../database/index.js'
import type { Ring } from '../../../doorbell/index.js'
import {
  awaitsIn,
  type ChildrenOf,
  childrenFromIn,
  countChildrenIn,
  type DocumentName,
  hasOpenChild,
  idKey,
  isOfFormer,
  type StoredParent,
  termsOf,
} from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import { endPhases, endsOf, type LifecycleModel, notifyingOf } from '../../model/model.js'
import { registeredModels } from '../../model/registered.js'
import { OutageLog } from '../../reporting/bounded-log.js'
import type { Logger } from '../../reporting/logger.js'
import { successesFor } from '../../step/children.js'
import { type WakeIf, Waker } from './waker.js'

/** The way that a child came to its end. */
type ChildEnd = 'succeeded' | 'failed' | 'parked'

/** The time that a registered entry in `phaselock.lifecycles` is taken for true, for a lifecycle that this replica doesn't run. */
const KNOWN_MS = 60_000

export interface ParentNotifierOptions {
  readonly db: Db
  readonly clock: Clock
  readonly logger: Logger
  readonly serverNow: () => Date
  /** The lifecycles that this replica runs. */
  readonly running: () => readonly { readonly model: LifecycleModel; readonly waker: Waker }[]
  readonly lookSoon: () => void
  readonly ringOthers: (ring: Ring) => void
}

/**
 * Notifies parents of the ends of their children, as a hint: a parent is woken if the end decides its wait. The hint relies on counts that are read
 * by an index at that time, so nothing is counted that could be counted twice. Where it is lost, the parent counts again at the end of its sleep.
 */
export class ParentNotifier {
  private readonly known = new Map<string, { readonly model: LifecycleModel; readonly readAtMs: number }>()
  private readonly foreign = new Map<string, Waker>()
  private readonly notifying = new Set<Promise<void>>()
  private readonly outage: OutageLog

  constructor(private readonly options: ParentNotifierOptions) {
    this.outage = new OutageLog('waking parents', options.clock, options.logger)
  }

  /** A lifecycle that this replica runs, or that another one has registered; undefined: it is unknown. */
  async modelOf(name: string): Promise<LifecycleModel | undefined> {
    const own = this.options.running().find(({ model }) => model.name === name)
    if (own) return own.model
    const nowMs = this.options.clock.monotonicMs()
    const before = this.known.get(name)
    if (before && nowMs - before.readAtMs < KNOWN_MS) return before.model
    const [model] = await registeredModels(this.options.db, { _id: name })
    if (!model) return undefined
    // Its documents are woken, and taken down, from here.
    if (!before) await learnSharding(this.options.db, [model.collection])
    this.known.set(name, { model, readAtMs: nowMs })
    return model
  }

  /** The names of all lifecycles whose documents may be children, as far as they are known. */
  async childLifecycles(): Promise<readonly string[]> {
    const own = this.options.running().filter(({ model }) => model.settings.child)
    const others = (await registeredModels(this.options.db, { child: true })).filter(({ settings }) => settings.child)
    return [...new Set([...own.map(({ model }) => model.name), ...others.map(({ name }) => name)])]
  }

  collectionOf(model: LifecycleModel): Collection {
    return protocolCollection(this.options.db, model.collection)
  }

  /** @param fromFence only those from this fence on */
  childrenOf(model: LifecycleModel, parent: ChildrenOf['parent'], fromFence?: number): ChildrenOf {
    return {
      collection: this.collectionOf(model),
      progress: model.settings.progress,
      parent,
      fromFence,
      notifying: notifyingOf(model),
    }
  }

  /** Rings for new documents of these lifecycles, which are due. */
  inserted(models: readonly LifecycleModel[]): void {
    if (models.length === 0) return
    this.options.ringOthers({ lifecycles: models.map(({ name }) => name) })
    this.options.lookSoon()
  }

  /** Notifies a parent, if this end decides what it waits for. Returns immediately and never throws. */
  ended(model: LifecycleModel, parent: StoredParent, how: ChildEnd): void {
    // A failure that has not been looked at yet is not forgotten for a success after it.
    this.notify(parent, how === 'succeeded' ? model.name : `${model.name} ${how}`, this.decides(model, parent, how))
  }

  /** Notifies a document that waits until another one is in this phase. */
  reached({ name: lifecycle }: LifecycleModel, id: unknown, phase: string, waiter: DocumentName): void {
    const key = idKey(id)
    this.notify(waiter, `${lifecycle} ${key}`, async (progress) => {
      const awaits = awaitsIn(progress)
      if (awaits?.kind !== 'document' || !awaits.phases.includes(phase)) return false
      return awaits.lifecycle === lifecycle && idKey(awaits.id) === key
    })
  }

  /** The number of documents that were woken so far, for any reason. */
  get woken(): number {
    const own = this.options.running().map(({ waker }) => waker)
    return [...own, ...this.foreign.values()].reduce((sum, { woken }) => sum + woken, 0)
  }

  /** Resolves when the ends so far have been reported. */
  async settled(): Promise<void> {
    while (this.notifying.size > 0) await Promise.all(this.notifying)
    const own = this.options.running().map(({ waker }) => waker)
    await Promise.all([...own, ...this.foreign.values()].map((waker) => waker.settled()))
  }

  async stop(): Promise<void> {
    await Promise.all(this.notifying)
    await Promise.all([...this.foreign.values()].map((waker) => waker.stop()))
  }

  private notify({ lifecycle, id }: DocumentName, requester: string, isDue: WakeIf): void {
    const notified = this.wakerOf(lifecycle)
      .then((waker) => waker?.wakeIf(id, requester, isDue))
      .catch((error) => this.outage.failed(error))
      .finally(() => this.notifying.delete(notified))
    this.notifying.add(notified)
  }

  private async wakerOf(lifecycle: string): Promise<Waker | undefined> {
    const own = this.options.running().find(({ model }) => model.name === lifecycle)
    if (own) return own.waker
    const model = await this.modelOf(lifecycle)
    // Without the lockTimeout in force, legacy writers' leases look like sleeps: the parent counts again by itself.
    if (!model || model.settings.legacyWriters) return undefined
    const before = this.foreign.get(lifecycle)
    if (before) return before
    const { clock, serverNow, ringOthers } = this.options
    const terms = termsOf(model.settings.lockTimeoutMs, { progress: model.settings.progress })
    const waker = new Waker({
      ...{ model, clock, serverNow, collection: this.collectionOf(model), terms: () => terms },
      ...{ isOwn: () => true, waitedFor: () => undefined },
      onWoken: (phases) => ringOthers({ lifecycles: [lifecycle], phases }),
      onError: (error) => this.outage.failed(error),
    })
    this.foreign.set(lifecycle, waker)
    return waker
  }

  /** Decides if the end of one child decides its parent's wait, by the children of its lifecycle: a few index keys, however many there are. */
  private decides(model: LifecycleModel, child: StoredParent, how: ChildEnd): WakeIf {
    const { lifecycle, id } = child
    return async (progress) => {
      const awaits = awaitsIn(progress)
      const from = childrenFromIn(progress)
      if (awaits?.kind !== 'children' || isOfFormer(child, from)) return false
      const of = this.childrenOf(model, { lifecycle, id }, from)
      const butParked = awaits.parked === 'fails'
      if (how === 'parked' && !butParked) return false
      if (awaits.each) return true
      const hasFailed = how !== 'succeeded'
      const { rule } = awaits
      if (hasFailed && (rule === 'allSucceeded' || rule === 'anyFailed')) return true
      const some = successesFor(rule)
      const { succeeded, failed } = endPhases(model)
      if (some && !hasFailed && (await countChildrenIn(of, succeeded, some.n)) >= some.n) return true
      if (some && hasFailed && (butParked || (await countChildrenIn(of, failed, some.m)) > some.m - some.n)) return true
      return !(await hasOpenChild(of, endsOf(model), { butParked }))
    }
  }
}
