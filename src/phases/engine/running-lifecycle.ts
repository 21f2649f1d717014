import type { Document } from 'mongodb'
import { protocolCollection } from '../../database/index.js'
import type { Ring } from '../../doorbell/index.js'
import {
  type Claimant,
  RefusingDocuments,
  SAFE_PROTOCOL,
  type ServerClock,
  type Terms,
  termsOf,
  WorkSplit,
} from '../../lock/index.js'
import { BoundedLog } from '../bounded-log.js'
import { type LifecycleModel, workingPhases } from '../definition/model.js'
import { type ThreadPool, threadOf } from '../threads/index.js'
import type { ReplicaSettings } from './check-options.js'
import type { Company } from './claim/company.js'
import type { Environment, LifecycleEnvironment } from './environment.js'
import { LifecycleRunner } from './lifecycle-runner.js'
import type { LifecycleRegistry } from './registry/lifecycle-registry.js'
import type { LiveReplicas } from './registry/live-replicas.js'
import type { RunnableLifecycle } from './replica-options.js'
import { BrokenReports } from './report/broken-reports.js'
import { OutageLog } from './report/outage-log.js'
import type { LoopMonitor } from './run/loop-monitor.js'
import { Housekeeper } from './tick/housekeeper.js'
import { UnknownPhases } from './tick/unknown-phases.js'
import { Waker } from './wake/waker.js'

/** What a replica has one of, for all of its lifecycles. */
export interface ReplicaParts {
  readonly options: ReplicaSettings
  readonly identity: string
  readonly claimant: Claimant
  readonly registry: LifecycleRegistry
  readonly liveReplicas: LiveReplicas
  /** Which documents may be held together. */
  readonly company: Company
  /** For handlers that are declared as `thread(...)`. */
  readonly threads: ThreadPool
  readonly monitor: LoopMonitor
  /** Whether local timers wake the replica between ticks. */
  readonly wakes: () => boolean
  /** Asks for a look before the next tick, after `ms` or shortly. */
  readonly lookSoon: (ms?: number) => void
  /** Tells other replicas of documents that are due and that this one can't take. */
  readonly ringOthers: (ring: Ring) => void
}

export type RunningLifecycle = ReturnType<typeof runningLifecycle>

/** What a replica has for one lifecycle. */
export function runningLifecycle(env: Environment, parts: ReplicaParts, lifecycle: RunnableLifecycle) {
  const { options, identity, claimant, registry, monitor, company, threads, wakes, lookSoon, ringOthers } = parts
  const { clock, logger, observer, serverNow } = env
  const { model, handlers } = lifecycle
  const { db, renewalDb = db, ownerDb = db } = options
  lifecycle.attach(ownerDb, { doorbell: options.doorbell })
  const lines = new BoundedLog(logger, clock, ({ phase }) => lookAt(model.name, phase))
  const own: LifecycleEnvironment = {
    ...env,
    model,
    collection: protocolCollection<Document>(db, model.collection),
    renewalCollection: protocolCollection<Document>(renewalDb, model.collection),
    terms: () => termsInForce(registry, env.serverClock, lifecycle, options.protocol),
    keepTermsFresh: () => registry.keepFresh(),
    // Asked each time: in a Nest app the handlers are known only after the replica was made.
    kindOf: (phase) => (threadOf(handlers[phase]) ? 'thread' : 'loop'),
    refusing: new RefusingDocuments(clock),
    broken: new BrokenReports(model.name, model.settings.progress, observer, lines),
    lines,
  }
  const workSplit = new WorkSplit(() => parts.liveReplicas.standing(model.name), clock)
  const ring = (phases?: readonly string[]) => ringOthers({ lifecycles: [model.name], phases })
  const runner = new LifecycleRunner(own, {
    ...{ handlers, claimant, company, threads, workSplit, wakes },
    activities: new Map(Object.keys(handlers).map((phase) => [phase, monitor.activity(model.name, phase)])),
    lookSoon: () => lookSoon(),
    ringOthers: (phase) => ring([phase]),
  })
  const outage = new OutageLog(`${model.name}: waking documents`, clock, logger)
  const waker = new Waker({
    ...{ model, collection: own.collection, terms: own.terms, clock, workSplit, serverNow },
    // What is woken is claimed here at once, as far as there is room; other replicas are notified.
    onWoken: (phases, woken) => {
      outage.succeeded()
      runner.claimer.offer(phases)
      if (workSplit.of > 1) ring(phases)
      observer.woken({ lifecycle: model.name, ...woken })
    },
    onError: (error) => outage.failed(error),
  })
  const look = () => {
    lookSoon(0)
    ring()
  }
  const wake: Waker['wake'] = (ids, news) => waker.wake(ids, news)
  const context = { model, db, replica: identity, logger, observer, clock, wake, look }
  return {
    ...{ model, refusing: own.refusing, lines, terms: own.terms, runner, claimer: runner.claimer, waker },
    housekeeper: new Housekeeper(own),
    unknownPhases: new UnknownPhases(own, registry),
    alongside: () => [...(options.alongside ?? []), ...(lifecycle.alongside ?? [])].map((work) => ({ work, context })),
  }
}

/** The terms in force for a lifecycle. */
export function termsInForce(
  registry: LifecycleRegistry,
  serverClock: ServerClock,
  { model, only }: { readonly model: LifecycleModel } & Pick<RunnableLifecycle, 'only'>,
  protocol = SAFE_PROTOCOL,
): Terms {
  const { dueMs, leaseMs, knownUntil } = registry.lockTimeout(model)
  const { legacyWriters, progress, backOff } = model.settings
  const hold = serverClock.hold()
  return termsOf(dueMs, {
    ...{ leaseMs, validUntil: knownUntil, legacyWriters, progress, backOff, protocol, only: only?.() },
    hold: hold && { ...hold, working: workingPhases(model) },
  })
}

const lookAt = (lifecycle: string, phase: string | undefined): string =>
  `phaselock list ${lifecycle}${phase === undefined ? '' : ` --phase ${phase}`} shows them, phaselock show <id> why`
