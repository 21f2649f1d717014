import type { Collection, Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import {
  type Only,
  pauseMs,
  RefusingDocuments,
  SAFE_PROTOCOL,
  type ServerClock,
  type Terms,
  termsOf,
  WorkSplit,
} from '../../lock/index.js'
import { BoundedLog } from '../bounded-log.js'
import type { LifecycleModel } from '../definition/lifecycle.js'
import { threadOf } from '../threads/index.js'
import { LifecycleRunner } from './lifecycle-runner.js'
import type { LifecycleRegistry } from './registry/lifecycle-registry.js'
import type { ReplicaOptions, RunnableLifecycle } from './replica-options.js'
import type { ReplicaParts } from './replica-parts.js'
import { BrokenReports } from './report/broken-reports.js'
import { OutageLog } from './report/outage-log.js'
import type { LoopMonitor, PhaseActivity } from './run/loop-monitor.js'
import { Housekeeper } from './tick/housekeeper.js'
import { UnknownPhases } from './tick/unknown-phases.js'
import type { AlongsideWork } from './wake/alongside.js'
import { Waker } from './wake/waker.js'

/** What a replica has for one lifecycle. */
export interface RunningLifecycle {
  readonly model: LifecycleModel
  readonly runner: LifecycleRunner
  readonly housekeeper: Housekeeper
  readonly skips: RefusingDocuments
  /** Lines about single documents. */
  readonly lines: BoundedLog
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
  serverClock: ServerClock,
  model: LifecycleModel,
  protocol: ReplicaOptions['protocol'],
  only?: Only,
): Terms {
  const { dueMs, leaseMs, knownUntil } = registry.lockTimeout(model)
  const hold = serverClock.hold()
  return termsOf(dueMs, {
    leaseMs,
    validUntil: knownUntil,
    hold: hold && { ...hold, working: workingPhases(model) },
    legacyWriters: model.settings.legacyWriters,
    progress: model.settings.progress,
    backOff: model.settings.backOff,
    protocol: protocol ?? SAFE_PROTOCOL,
    only,
  })
}

const workingPhases = ({ phases }: LifecycleModel): string[] =>
  [...phases.values()].filter(({ kind }) => kind === 'working').map(({ name }) => name)

function activitiesOf(monitor: LoopMonitor, { model, handlers }: RunnableLifecycle): Map<string, PhaseActivity> {
  return new Map(Object.keys(handlers).map((phase) => [phase, monitor.activity(model.name, phase)]))
}

export function runningLifecycle(parts: ReplicaParts, lifecycle: RunnableLifecycle): RunningLifecycle {
  const { options, identity, registry, liveReplicas, monitor, lookSoon, ringOthers, ...shared } = parts
  const { clock, serverClock, logger, observer } = shared
  const { model, handlers } = lifecycle
  const { db, renewalDb = db, ownerDb = db } = options
  lifecycle.attach(ownerDb, { doorbell: options.doorbell })
  const collection = protocolCollection<Document>(db, model.collection)
  const terms = () => termsInForce(registry, serverClock, model, options.protocol, lifecycle.only?.())
  const skips = new RefusingDocuments(clock)
  const lines = new BoundedLog(logger, clock, ({ phase }) => lookAt(model.name, phase))
  const broken = new BrokenReports(model.name, model.settings.progress, observer, lines)
  const share = new WorkSplit(() => liveReplicas.standing(model.name), clock)
  const runner = new LifecycleRunner({
    ...shared,
    model,
    handlers,
    collection,
    renewalCollection: protocolCollection<Document>(renewalDb, model.collection),
    replica: identity,
    // Asked each time: in a Nest app the handlers are known only after the replica was made.
    threadPhases: { has: (phase) => threadOf(handlers[phase]) !== undefined },
    activities: activitiesOf(monitor, lifecycle),
    skips,
    broken,
    lines,
    terms,
    serverNow: () => serverClock.now() ?? clock.now(),
    deadlineHold: () => serverClock.deadlineHold(),
    pauseMs: (waitedMs) => pauseMs(waitedMs, registry.lockTimeout(model).dueMs, model.settings.backOff),
    keepTermsFresh: () => registry.keepFresh(),
    share,
    lookSoon: () => lookSoon(),
    ringOthers: (phase) => ringOthers({ lifecycles: [model.name], phases: [phase] }),
  })
  const housekeeper = new Housekeeper({ ...shared, model, collection, terms, skips, broken })
  const unknownPhases = new UnknownPhases(
    model,
    collection,
    lines,
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
  return { model, runner, housekeeper, skips, lines, unknownPhases, alongside, waker, terms }
}

const lookAt = (lifecycle: string, phase: string | undefined): string =>
  `phaselock list ${lifecycle}${phase === undefined ? '' : ` --phase ${phase}`} shows them, phaselock show <id> why`

/** What is woken is claimed here at once, as far as there is room; other replicas are told. */
function wakerOf(
  { clock, serverClock, logger, observer, ringOthers }: ReplicaParts,
  {
    model,
    collection,
    terms,
    runner,
    share,
  }: Pick<RunningLifecycle, 'model' | 'runner' | 'terms'> & { collection: Collection; share: WorkSplit },
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
