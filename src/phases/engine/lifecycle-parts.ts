import type { Collection, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import type { Ring } from '../../doorbell/index.js'
import {
  type Only,
  pauseMs,
  SAFE_PROTOCOL,
  type ServerClock,
  Share,
  SkipList,
  type Terms,
  termsOf,
} from '../../lock/index.js'
import type { Clock } from '../../time/index.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import type { Logger } from '../logger.js'
import { type ThreadPool, threadOf } from '../threads/index.js'
import type { AlongsideWork } from './alongside.js'
import { BrokenReports } from './broken-reports.js'
import { Housekeeper } from './housekeeper.js'
import { LifecycleRunner } from './lifecycle-runner.js'
import type { LoopMonitor, PhaseActivity } from './loop-monitor.js'
import type { ReplicaObserver } from './observer.js'
import { OutageLog } from './outage-log.js'
import type { Presence } from './presence.js'
import type { LifecycleRegistry } from './registry.js'
import type { ReplicaOptions, RunnableLifecycle } from './replica-options.js'
import { UnknownPhases } from './unknown-phases.js'
import { Waker } from './waker.js'

/** What a replica has one of, for all of its lifecycles. */
export interface ReplicaParts {
  readonly options: ReplicaOptions
  readonly identity: string
  readonly clock: Clock
  readonly serverClock: ServerClock
  readonly random: () => number
  readonly logger: Logger
  readonly observer: Required<ReplicaObserver>
  readonly registry: LifecycleRegistry
  readonly presence: Presence
  readonly threads: ThreadPool
  readonly monitor: LoopMonitor
  /** Whether local timers wake the replica between ticks. */
  readonly wakes: () => boolean
  /** Asks for a look ahead of the next tick, after so many milliseconds or a few. */
  readonly lookSoon: (ms?: number) => void
  /** Tells other replicas of documents that are due and that this one can't take. */
  readonly ringOthers: (ring: Ring) => void
}

/** What a replica has for one lifecycle. */
export interface LifecycleParts {
  readonly model: LifecycleModel
  readonly runner: LifecycleRunner
  readonly housekeeper: Housekeeper
  readonly skips: SkipList
  readonly unknownPhases: UnknownPhases
  /** What runs beside it, and what they wake documents with. */
  readonly alongside: () => readonly AlongsideWork[]
  readonly waker: Waker
  /** The terms in force. */
  readonly terms: () => Terms
}

/** The terms in force for a lifecycle. */
export function termsInForce(
  registry: LifecycleRegistry,
  model: LifecycleModel,
  protocol: ReplicaOptions['protocol'],
  only?: Only,
): Terms {
  const { dueMs, leaseMs, knownUntil } = registry.lockTimeout(model)
  return termsOf(dueMs, {
    leaseMs,
    validUntil: knownUntil,
    legacyWriters: model.settings.legacyWriters,
    progress: model.settings.progress,
    backOff: model.settings.backOff,
    protocol: protocol ?? SAFE_PROTOCOL,
    only,
  })
}

function activitiesOf(monitor: LoopMonitor, { model, handlers }: RunnableLifecycle): Map<string, PhaseActivity> {
  return new Map(Object.keys(handlers).map((phase) => [phase, monitor.activity(model.name, phase)]))
}

export function lifecycleParts(parts: ReplicaParts, lifecycle: RunnableLifecycle): LifecycleParts {
  const {
    options,
    identity,
    clock,
    serverClock,
    random,
    logger,
    observer,
    registry,
    presence,
    wakes,
    lookSoon,
    ringOthers,
    threads,
    monitor,
  } = parts
  const { model, handlers } = lifecycle
  const { db, renewalDb = db, ownerDb = db } = options
  lifecycle.attach(ownerDb, { doorbell: options.doorbell })
  const collection = protocolCollection<Document>(db, model.collection)
  const terms = () => termsInForce(registry, model, options.protocol, lifecycle.only?.())
  const skips = new SkipList(clock)
  const broken = new BrokenReports(model.name, model.settings.progress, observer, logger, clock)
  const share = new Share(() => presence.standing(model.name), clock)
  const runner = new LifecycleRunner({
    model,
    handlers,
    collection,
    renewalCollection: protocolCollection<Document>(renewalDb, model.collection),
    replica: identity,
    threads,
    // Asked each time: in a Nest app the handlers are known only after the replica was made.
    threadPhases: { has: (phase) => threadOf(handlers[phase]) !== undefined },
    activities: activitiesOf(monitor, lifecycle),
    clock,
    serverClock,
    random,
    logger,
    observer,
    skips,
    broken,
    terms,
    serverNow: () => serverClock.now() ?? clock.now(),
    pauseMs: (waitedMs) => pauseMs(waitedMs, registry.lockTimeout(model).dueMs, model.settings.backOff),
    keepTermsFresh: () => registry.keepFresh(),
    share,
    wakes,
    lookSoon: () => lookSoon(),
    ringOthers: (phase) => ringOthers({ lifecycles: [model.name], phases: [phase] }),
  })
  const housekeeper = new Housekeeper({ model, collection, terms, serverClock, clock, random, observer, skips, broken })
  const unknownPhases = new UnknownPhases(
    model,
    collection,
    logger,
    () => registry.phasesBeside(model),
    (found) => broken.phase(found),
    registry.siblingPhases(model),
  )
  const waker = wakerOf(parts, { model, collection, terms, runner, share })
  const look = () => {
    lookSoon(0)
    ringOthers({ lifecycles: [model.name] })
  }
  const wake: Waker['wake'] = (ids, news) => waker.wake(ids, news)
  const context = { model, db, replica: identity, logger, observer, clock, wake, look }
  const alongside = () =>
    [...(options.alongside ?? []), ...(lifecycle.alongside ?? [])].map((work) => ({ work, context }))
  return { model, runner, housekeeper, skips, unknownPhases, alongside, waker, terms }
}

/** What is woken is claimed here at once, as far as there is room; other replicas are told. */
function wakerOf(
  { clock, serverClock, logger, observer, ringOthers }: ReplicaParts,
  {
    model,
    collection,
    terms,
    runner,
    share,
  }: Pick<LifecycleParts, 'model' | 'runner' | 'terms'> & { collection: Collection; share: Share },
): Waker {
  const outage = new OutageLog(`${model.name}: waking documents`, clock, logger)
  return new Waker({
    ...{ model, collection, terms, clock, share },
    serverNow: () => serverClock.now() ?? clock.now(),
    onWoken: (phases, woken) => {
      outage.succeeded()
      runner.offer(phases)
      if (share.of > 1) ringOthers({ lifecycles: [model.name], phases })
      observer.woken({ lifecycle: model.name, ...woken })
    },
    onError: (error) => outage.failed(error),
  })
}
