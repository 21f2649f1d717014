import type { Document } from 'mongodb'
import { protocolCollection } from '../../../database/index.js'
import { RefusingDocuments, type Terms, termsOf, WorkSplit } from '../../../lock/index.js'
import { numbered, typed } from '../../../options/index.js'
import { EventWriter } from '../../events/events.js'
import { workingPhases } from '../../model/model.js'
import { BoundedLog, OutageLog } from '../../reporting/bounded-log.js'
import { BrokenReports } from '../../reporting/broken-reports.js'
import { threadOf } from '../../threads/index.js'
import { Deliverer } from '../callbacks/deliverer.js'
import type { CrashIsolation } from '../claim/crash-isolation.js'
import type { StepKind } from '../concurrency/step-semaphore.js'
import type { Environment, LifecycleEnvironment } from '../context/environment.js'
import type { RunnableLifecycle } from '../options/replica-options.js'
import type { LoopMonitor } from '../run/loop-monitor.js'
import { Waker } from '../wake/waker.js'
import { LifecycleRunner } from './lifecycle-runner.js'
import { TickDuties } from './tick-duties.js'

export type RunningLifecycle = ReturnType<typeof runningLifecycle>

/** Makes the parts that a replica has for one lifecycle. */
export function runningLifecycle(
  env: Environment,
  lifecycle: RunnableLifecycle,
  { isolation, monitor }: { isolation: CrashIsolation; monitor: LoopMonitor },
) {
  const { options, identity, registry, liveReplicas, lookSoon, ringOthers } = env
  const { clock, logger, observer, serverClock } = env
  const { model, handlers } = lifecycle
  const { db, renewalDb = db, ownerDb = db } = options
  const beside = options.lifecycles.map((one) => one.model)
  lifecycle.attach(ownerDb, { doorbell: options.doorbell }, beside)
  const lines = new BoundedLog(logger, clock, ({ phase }) => lookAt(model.name, phase))
  const working = workingPhases(model)
  const terms = (): Terms => {
    const { dueMs, leaseMs, knownUntil: validUntil } = registry.lockTimeout(model)
    const { legacyWriters, progress, backOff, callbacks } = model.settings
    const held = serverClock.hold()
    const hold = held && { ...held, working }
    return termsOf(dueMs, {
      ...{ leaseMs, validUntil, legacyWriters, progress, backOff, hold, working, callbacks },
      only: lifecycle.only?.(),
      leastWaitMs: options.tickEvery,
    })
  }
  const events =
    model.settings.events &&
    new EventWriter({
      ...{ db, identity, keeps: model.settings.events, serverNow: env.serverNow },
      onLost(count, why) {
        lines.warn({ kind: 'events were lost' }, `${numbered(count, 'event was', 'events were')} not kept: ${why}`)
        observer.eventsLost({ lifecycle: model.name, count, why })
      },
    })
  const kinds = new Map<string, StepKind>()
  const shared = {
    ...env,
    model,
    collection: protocolCollection<Document>(db, model.collection, lifecycle.plainNumbers),
    renewalCollection: protocolCollection<Document>(renewalDb, model.collection),
    terms,
    keepTermsFresh: () => registry.keepFresh(),
    paused: () => registry.paused(model),
    isSuperseded: () => registry.isSuperseded(model),
    // Asked when a phase is first worked on: in a Nest app the handlers are known only after the replica was made.
    kindOf(phase: string): StepKind {
      const kind = kinds.get(phase) ?? (threadOf(handlers[phase]) ? 'thread' : 'loop')
      kinds.set(phase, kind)
      return kind
    },
    flow: env.flows.of(model.name),
    refusing: new RefusingDocuments(clock),
    broken: new BrokenReports(model.name, model.settings.progress, observer, lines),
    events,
    lines,
  }
  const deliverer =
    model.settings.callbacks &&
    new Deliverer({
      ...{ env: shared, identity, isolation, callbacks: lifecycle.callbacks ?? {} },
      outage: new OutageLog(`${model.name}: notifying callbacks`, clock, logger),
    })
  const own: LifecycleEnvironment = { ...shared, callbacks: deliverer }
  const workSplit = new WorkSplit((phase) => liveReplicas.membership(model.name, phase), clock)
  const ring = (phases?: readonly string[]) => ringOthers({ lifecycles: [model.name], phases })
  const runner = new LifecycleRunner(own, { workSplit, handlers, isolation, monitor })
  const outage = new OutageLog(`${model.name}: waking documents`, clock, logger)
  const waker = new Waker({
    ...own,
    isOwn: (key, phase) => workSplit.isOwn(key, phase),
    waitedFor: (phase, key) => runner.claimer.waitedFor(phase, key),
    // Woken documents are claimed here immediately, if there is room; other replicas are notified.
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
    ...{
      model,
      collection: own.collection,
      refusing: own.refusing,
      paused: own.paused,
      lines,
      terms,
      runner,
      claimer: runner.claimer,
      waker,
    },
    deliverer,
    events,
    tickDuties: new TickDuties(own),
    /** Its background work, with the context for it. */
    alongside: () => [...options.alongside, ...(lifecycle.alongside ?? [])].map((work) => [work, context] as const),
  }
}

const lookAt = (lifecycle: string, phase: string | undefined): string =>
  `phaselock list ${typed(lifecycle)}${phase === undefined ? '' : ` --phase ${typed(phase)}`} shows them, phaselock show <id> why`
