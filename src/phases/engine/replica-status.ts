import { MissingIndex, pauseText, type ReplicaReport, type RunLifecycle } from '../../lock/index.js'
import { workingPhases } from '../model/model.js'
import type { OutageLog } from '../reporting/bounded-log.js'
import type { LifecycleRunner } from './lifecycle/lifecycle-runner.js'
import type { RunningLifecycle } from './lifecycle/running-lifecycle.js'
import type { LimitLeases } from './limits/limit-leases.js'
import type { DoorbellStatus, ReplicaStatus } from './options/replica-options.js'
import { graphOf, type LifecycleRegistry } from './registry/lifecycle-registry.js'
import type { LiveReplicas } from './registry/live-replicas.js'

const TOO_MANY_ABANDONED = 5

interface Parts {
  readonly identity: string
  readonly running: readonly RunningLifecycle[]
  readonly outage: OutageLog
  readonly registry: LifecycleRegistry
  readonly limitLeases: LimitLeases
  readonly liveReplicas: LiveReplicas
  readonly doorbell: DoorbellStatus
  /** The problems that background work reports. */
  readonly problems: readonly string[]
}

/** @param states the states of the replica itself in which it isn't ready */
export function statusOf(parts: Parts, states: readonly string[]): ReplicaStatus {
  const { identity, running, outage, registry, limitLeases, liveReplicas, doorbell, problems } = parts
  const all = running.map(({ runner }) => runner.counts)
  const sum = (name: keyof LifecycleRunner['counts']) => all.reduce((n, counts) => n + counts[name], 0)
  const abandoned = sum('abandoned')
  const { lasting, lastError } = outage
  return {
    identity,
    notReady: [
      ...states,
      ...(lasting ? [lastError instanceof MissingIndex ? lastError.message : 'the database does not answer'] : []),
      ...registry.problems,
      ...running.flatMap(({ claimer }) => claimer.problem ?? []),
      ...(abandoned >= TOO_MANY_ABANDONED ? [`${abandoned} handlers were given up and still run`] : []),
    ],
    problems,
    paused: running.flatMap(({ model: { name: lifecycle }, paused }) =>
      paused().pauses.map((pause) => {
        const { by, reason, since, until, ...target } = pause
        return { lifecycle, ...target, text: pauseText(lifecycle, pause) }
      }),
    ),
    ...{ held: sum('held'), queued: sum('queued'), running: sum('running'), abandoned },
    limits: limitLeases.held(),
    skipped: running.reduce((n, { refusing }) => n + refusing.size, 0),
    doorbell,
    replicas: liveReplicas.countByVersion(),
  }
}

/** The current figures for a replica's document in `phaselock.replicas`. */
export function figuresOf(
  running: readonly RunningLifecycle[],
  limitLeases: LimitLeases,
): Pick<ReplicaReport, 'lifecycles' | 'limits'> {
  const lifecycles = running.map(({ model, runner, terms }): RunLifecycle => {
    const { places, free, held } = runner.counts
    const { knows } = terms().only ?? {}
    const heldIn = [...runner.heldIn].map(([phase, n]) => ({ phase, n }))
    return {
      name: model.name,
      graph: graphOf(model),
      phases: workingPhases(model),
      places,
      free,
      held,
      heldIn,
      ...(knows && { knows }),
    }
  })
  const held = limitLeases.held()
  const limits = held.map(({ limit, leased, used }) => ({ limit, leased, used })).filter(({ leased }) => leased > 0)
  return { lifecycles, ...(held.length > 0 && { limits }) }
}
