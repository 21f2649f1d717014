import type { Registry } from 'prom-client'
import type { LeaseLoss, LifecycleModel, ReplicaObserver } from '../../phases/index.js'
import { Instruments } from './instruments.js'

const STEP_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300]
const BLOCKED_SECONDS = [0.2, 0.5, 1, 2, 5, 10, 30]
const TICK_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

const LOSSES = ['refused', 'movedOn', 'renewal', 'abandoned', 'givenUp'] as const satisfies readonly LeaseLoss['how'][]

/** Counts the notifications of a replica's observer. */
export function observerMetrics(registry: Registry, models: readonly LifecycleModel[]): Required<ReplicaObserver> {
  const instruments = new Instruments(registry)
  const labels = ['lifecycle', 'phase'] as const
  const stepLabels = [...labels, 'outcome'] as const
  const steps = instruments.counter('steps_total', 'Steps that this replica recorded, by outcome', stepLabels)
  const leaseLost = instruments.counter(
    'lease_lost_total',
    'Outcomes or leases of this replica that were lost to another holder, by how: refused, movedOn, renewal, abandoned, givenUp',
    ['lifecycle', 'how'],
  )
  const calledBack = instruments.counter(
    'callbacks_total',
    'Calls of callbacks by this replica, by outcome: told, failed, parked (it has failed too often and waits for a person)',
    ['lifecycle', 'callback', 'outcome'],
  )
  const eventsLost = instruments.counter(
    'events_lost_total',
    'Events that this replica has left out of phaselock.events: the database did not keep up, or refused them',
    ['lifecycle'],
  )
  const claims = instruments.counter('claims_total', 'Documents that this replica claimed', labels)
  const lost = instruments.counter(
    'candidates_lost_total',
    'Candidates of a claim that went to another replica',
    labels,
  )
  const ruled = instruments.counter('documents_ruled_total', 'Documents that state rules moved', [
    'lifecycle',
    'state',
    'to',
  ])
  const removed = instruments.counter('documents_removed_total', 'Final documents that were removed', labels)
  const broken = instruments.counter(
    'broken_documents_total',
    'Documents that are not in the form that Phaselock needs, by what is wrong (a field, or why writes are refused) and what was done: mended, leftAlone, putAside, skipped',
    ['lifecycle', 'reason', 'fate'],
  )
  const rings = instruments.counter('rings_heard_total', 'Rings that this replica acted on; many at once count as one')
  const woken = instruments.counter(
    'documents_woken_total',
    'Sleeping documents that this replica woke because of news from outside',
    ['lifecycle'],
  )
  const watches = instruments.gauge(
    'watch_up',
    '1: what documents of this lifecycle wait for outside is watched; 0: it cannot be watched, so they continue at the end of their pauses',
    ['lifecycle', 'source', 'what'],
  )
  const failedTicks = instruments.counter(
    'ticks_failed_total',
    'Ticks that failed, for example because the database did not answer',
  )
  const clockSteps = instruments.counter(
    'server_clock_steps_total',
    "Steps of the database server's clock that this replica saw or was told about, by direction: forward, back",
    ['direction'],
  )
  for (const direction of ['forward', 'back']) clockSteps.inc({ direction }, 0)
  const stepSeconds = instruments.histogram('step_duration_seconds', 'How long handlers ran', labels, STEP_SECONDS)
  const tickSeconds = instruments.histogram(
    'tick_seconds',
    'How long a tick took: one look, state rules and removals; steps go on after it',
    [],
    TICK_SECONDS,
  )
  const blockedSeconds = instruments.histogram(
    'event_loop_blocked_seconds',
    'How long the event loop of this process was blocked at a time, by the handler that ran (an empty phase or lifecycle: several, or none)',
    labels,
    BLOCKED_SECONDS,
  )

  // A series that starts at 1 has no increase that an alert could see.
  for (const { name: lifecycle, settings } of models) {
    for (const how of LOSSES) leaseLost.inc({ lifecycle, how }, 0)
    if (settings.events) eventsLost.inc({ lifecycle }, 0)
    for (const callback of settings.callbacks ?? [])
      for (const outcome of ['told', 'failed', 'parked']) calledBack.inc({ lifecycle, callback, outcome }, 0)
  }

  return {
    claimed({ lifecycle, phase, claimed, lost: missed }) {
      claims.inc({ lifecycle, phase }, claimed)
      lost.inc({ lifecycle, phase }, missed)
    },
    stepEnded({ lifecycle, phase, outcome, ms }) {
      steps.inc({ lifecycle, phase, outcome })
      stepSeconds.observe({ lifecycle, phase }, ms / 1_000)
    },
    calledBack: ({ lifecycle, callback, outcome }) => calledBack.inc({ lifecycle, callback, outcome }),
    eventsLost: ({ lifecycle, count }) => eventsLost.inc({ lifecycle }, count),
    leaseLost: ({ lifecycle, how }) => leaseLost.inc({ lifecycle, how }),
    ruled: ({ lifecycle, state, to, count }) => ruled.inc({ lifecycle, state, to }, count),
    broken: ({ lifecycle, reason, fate }) => broken.inc({ lifecycle, reason, fate }),
    removed: ({ lifecycle, phase, count }) => removed.inc({ lifecycle, phase }, count),
    loopBlocked({ ms, by }) {
      const only = (name: 'lifecycle' | 'phase') => {
        const values = new Set(by.map((one) => one[name]))
        return values.size === 1 ? [...values][0]! : ''
      }
      const lifecycle = only('lifecycle')
      blockedSeconds.observe({ lifecycle, phase: lifecycle === '' ? '' : only('phase') }, ms / 1_000)
    },
    rung: () => rings.inc(),
    clockStepped: ({ ms }) => clockSteps.inc({ direction: ms > 0 ? 'forward' : 'back' }),
    woken: ({ lifecycle, count }) => woken.inc({ lifecycle }, count),
    watched({ lifecycle, source, what, up }) {
      if (up === undefined) watches.remove({ lifecycle, source, what })
      else watches.set({ lifecycle, source, what }, up ? 1 : 0)
    },
    ticked({ seconds, error }) {
      tickSeconds.observe(seconds)
      if (error !== undefined) failedTicks.inc()
    },
  }
}
