import { Registry } from 'prom-client'
import type { LockObserver } from '../../locks/index.js'
import { checkOptions, t } from '../../options/index.js'
import { Instruments } from './instruments.js'

const WAIT_SECONDS = [0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300]
const HOLD_SECONDS = [0.01, 0.1, 0.5, 1, 5, 30, 60, 300, 900, 3_600, 14_400]
/** The limit on labels: a function that gives each name a label of its own would flood Prometheus. */
const MOST_LABELS = 200
/** The label of locks without one of their own: empty. */
const UNNAMED = ''

/**
 * Selects the locks with the label `lock`: these, by their names; or the label that a function derives from a name ("tenant-42-sync" ->
 * "tenant-sync"; undefined: none). Names may be composed of anything, so by default no lock gets one.
 */
export type LockNames = readonly string[] | ((name: string) => string | undefined)

/** Options of `lockMetrics`; all may be omitted. */
export interface LockMetricsOptions {
  /** The registry to use. Default: one of its own. */
  readonly registry?: Registry | undefined
  /** The locks with a label of their own. Default: none; all count under an empty one. */
  readonly names?: LockNames | undefined
}

const lockMetricsOptions = t.object({
  registry: t.optional(t.having<Registry>(['registerMetric'], 'a Registry of prom-client')),
  names: t.optional(
    t.where<LockNames>(
      (value) =>
        typeof value === 'function' || (Array.isArray(value) && value.every((name) => typeof name === 'string')),
      t.expecting("a list of locks' names, or a function that makes a label of a name"),
    ),
  ),
} satisfies t.TypesOf<LockMetricsOptions>)

/** Metrics of named locks, for a process without a replica. */
export interface LockMetrics {
  /** The registry; `registry.metrics()` is the text for Prometheus. */
  readonly registry: Registry
  /** The observer for `new LockExecutor(provider, { observer })`, the Nest modules' `locks: { observer }`, or `observeLocks(observer)`. */
  readonly observer: Required<LockObserver>
  /** Counts failed commands on locks that aren't taken through an executor, under a label of their own. */
  failuresOf(label: string): (action: 'extend' | 'unlock') => void
}

/** Metrics of named locks for Prometheus (docs/named-locks.md lists them). @throws InvalidOptions */
export function lockMetrics(given: LockMetricsOptions = {}): LockMetrics {
  const options = checkOptions('lockMetrics', lockMetricsOptions, given)
  const registry = options.registry ?? new Registry()
  const instruments = new Instruments(registry)
  const acquisitions = instruments.counter(
    'lock_acquisitions_total',
    'Requests for named locks, by result: acquired, held (by another, without waiting), timedOut (after waiting), aborted, error (the server of the locks is unavailable)',
    ['lock', 'result'],
  )
  const waits = instruments.histogram(
    'lock_wait_seconds',
    'How long requests for named locks waited, whether or not they got the lock; those that did not want to wait are left out',
    ['lock'],
    WAIT_SECONDS,
  )
  const holds = instruments.histogram(
    'lock_hold_seconds',
    'How long tasks ran under named locks',
    ['lock'],
    HOLD_SECONDS,
  )
  const lost = instruments.counter('locks_lost_total', 'Named locks that ended before their task', ['lock'])
  const failed = instruments.counter(
    'lock_commands_failed_total',
    'Commands on held locks that failed: extend (tried again), unlock (the lock ends by itself)',
    ['lock', 'action'],
  )
  const held = instruments.gauge('locks_held', 'Named locks that tasks of this process hold', ['lock'])
  /** Labels by `lockedBy`, which no two acquisitions share: a lost lock isn't subtracted again when its task ends. */
  const labelsOfHeld = new Map<string, string>()
  const noLongerHeld = (lockedBy: string) => {
    const lock = labelsOfHeld.get(lockedBy)
    if (labelsOfHeld.delete(lockedBy)) held.dec({ lock: lock! })
  }
  // A series that starts at 1 has no increase that an alert could see.
  const begin = (lock: string) => {
    for (const result of ['acquired', 'held', 'timedOut', 'aborted', 'error']) acquisitions.inc({ lock, result }, 0)
    for (const action of ['extend', 'unlock']) failed.inc({ lock, action }, 0)
    lost.inc({ lock }, 0)
  }
  const labelOf = labels(options.names, begin)

  return {
    registry,
    failuresOf(lock) {
      for (const action of ['extend', 'unlock']) failed.inc({ lock, action }, 0)
      return (action) => failed.inc({ lock, action })
    },
    observer: {
      acquired({ name, lockedBy, waitedMs }) {
        const lock = labelOf(name)
        acquisitions.inc({ lock, result: 'acquired' })
        waits.observe({ lock }, waitedMs / 1_000)
        if (!labelsOfHeld.has(lockedBy)) held.inc({ lock })
        labelsOfHeld.set(lockedBy, lock)
      },
      notAcquired({ name, waitedMs, why }) {
        const lock = labelOf(name)
        acquisitions.inc({ lock, result: why })
        if (why !== 'held') waits.observe({ lock }, waitedMs / 1_000)
      },
      unavailable: ({ name }) => acquisitions.inc({ lock: labelOf(name), result: 'error' }),
      finished({ name, lockedBy, ms }) {
        noLongerHeld(lockedBy)
        holds.observe({ lock: labelOf(name) }, ms / 1_000)
      },
      lost({ name, lockedBy }) {
        noLongerHeld(lockedBy)
        lost.inc({ lock: labelOf(name) })
      },
      failed: ({ name, action }) => failed.inc({ lock: labelOf(name), action }),
    },
  }
}

/** @param begin called once with each label, before it is used */
function labels(names: LockNames | undefined, begin: (label: string) => void): (name: string) => string {
  const known = new Set([UNNAMED, ...(typeof names === 'function' ? [] : (names ?? []))])
  for (const label of known) begin(label)
  if (typeof names !== 'function') return (name) => (known.has(name) ? name : UNNAMED)
  return (name) => {
    const label = names(name) ?? UNNAMED
    if (known.has(label)) return label
    if (known.size > MOST_LABELS) return UNNAMED
    known.add(label)
    begin(label)
    return label
  }
}
