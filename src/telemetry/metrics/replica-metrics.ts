import type { Db } from 'mongodb'
import { collectDefaultMetrics, Registry } from 'prom-client'
import type { LockObserver } from '../../locks/index.js'
import { checkOptions, t } from '../../options/index.js'
import {
  type LifecycleModel,
  type Logger,
  lookAtCensus,
  type ReplicaObserver,
  type ReplicaStatus,
  readCensus,
  type SlotsHeld,
} from '../../phases/index.js'
import type { ScheduleReports } from '../../schedules/index.js'
import { censusGauges } from './census-metrics.js'
import { observerMetrics } from './counters.js'
import { dutyGauges } from './duty-metrics.js'
import { Instruments, oncePerScrape, type Row, withinScrape } from './instruments.js'
import { type LockNames, lockMetrics } from './lock-metrics.js'
import { type OwnMetrics, ownCounters, ownGauges } from './own-metrics.js'
import { type AddReports, runMetrics, scheduleGauges } from './schedule-metrics.js'

/** A lifecycle; those of schedules and of packages bring metrics besides those of their steps. */
export interface MeasuredLifecycle {
  /** Its checked phases and settings. */
  readonly model: LifecycleModel
  /** For schedules: counts other than those of their documents. */
  readonly reports?: ScheduleReports | undefined
  /** For lifecycles of packages: counters and gauges of their own. */
  readonly metrics?: OwnMetrics | undefined
}

/** Options of `replicaMetrics`. */
export interface ReplicaMetricsOptions {
  /** The database of the documents, whose censuses are read at each scrape. */
  readonly db: Db
  /** The lifecycles whose documents and steps are counted. */
  readonly lifecycles: readonly MeasuredLifecycle[]
  /** True to count documents too: the numbers of due and parked ones are the same for all replicas. Default true. */
  readonly documents?: boolean | undefined
  /** True to include this process's own memory, CPU and event loop. Default true. */
  readonly processMetrics?: boolean | undefined
  /** The named locks that have the label `lock`. Default: none. */
  readonly lockNames?: LockNames | undefined
  /** Schedules whose last success is shown. Default: all if there are at most 50, else none. */
  readonly scheduleNames?: readonly string[] | undefined
  /** Gets a warning if documents can't be counted. Default: no logger. */
  readonly logger?: Logger | undefined
}

const measured = t.checked(
  t.having<MeasuredLifecycle>([], 'a lifecycle'),
  (one) => one.model?.phases instanceof Map,
  'expected a lifecycle',
)

/** The options of metrics of documents. */
export const documentOptions = {
  db: t.aDatabase,
  lifecycles: t.list(measured, t.expecting('a list of lifecycles')),
  logger: t.optional(t.having<Logger>(['warn'], 'a logger')),
} as const

const metricsOptions = t.object({
  ...documentOptions,
  documents: t.optional(t.flag),
  processMetrics: t.optional(t.flag),
  lockNames: t.anything<LockNames>(),
  scheduleNames: t.optional(t.list(t.text, t.expecting('a list of names'))),
} satisfies t.TypesOf<ReplicaMetricsOptions>)

/** The label of all locks that runs of schedules take: one per schedule would be too many. */
const LOCKS_OF_RUNS = 'scheduler_lock'

/** Metrics of one replica, in a registry of their own: the app's global one is left alone. */
export interface ReplicaMetrics {
  /** The registry; `registry.metrics()` is the text for Prometheus. */
  readonly registry: Registry
  /** The observer to pass to the replica: `new Replica({ ..., observer })` or `PhaselockModule.forRoot({ ..., observer })`. */
  readonly observer: ReplicaObserver
  /** The observer to pass to users of named locks: `new LockExecutor(provider, { observer })`, or `locks: { observer }` of the Nest modules. */
  readonly locks: LockObserver
  /** Shows schedules whose lifecycles were not among the options: in a Nest app, `app.get(Schedules)`. */
  watchSchedules(schedules: { readonly lifecycles: readonly MeasuredLifecycle[] }): void
  /** Shows the documents and slots that this replica holds too; call it once the replica exists. */
  watch(replica: { status(): ReplicaStatus }): void
}

/**
 * Metrics for Prometheus. Counters and durations come from the replica's observer; the numbers of documents from the last census of
 * each lifecycle, which one replica takes for all: a scrape reads no document, and lets the next census come sooner. If the database doesn't
 * answer, a scrape still works: `phaselock_database_up` is 0 then, and those counts are left out.
 * @throws InvalidOptions
 */
export function replicaMetrics(given: ReplicaMetricsOptions): ReplicaMetrics {
  const options: ReplicaMetricsOptions = checkOptions('replicaMetrics', metricsOptions, given)
  const registry = new Registry()
  if (options.processMetrics ?? true) collectDefaultMetrics({ register: registry })
  const documents = (options.documents ?? true) ? documentMetrics(registry, options) : undefined
  const locks = lockMetrics({ registry, names: options.lockNames })
  const addRuns = addingReports(() => runMetrics(registry, locks.failuresOf(LOCKS_OF_RUNS)))
  addRuns(options.lifecycles)
  for (const own of ownOf(options.lifecycles)) ownCounters(registry, own)
  return {
    registry,
    observer: observerMetrics(
      registry,
      options.lifecycles.map(({ model }) => model),
    ),
    locks: locks.observer,
    watch: (replica) => replicaGauges(registry, () => replica.status()),
    watchSchedules({ lifecycles }) {
      documents?.add(lifecycles)
      addRuns(lifecycles)
    },
  }
}

/** Gauges of documents by the last censuses, and of schedules. */
export function documentMetrics(
  registry: Registry,
  options: Pick<ReplicaMetricsOptions, 'db' | 'lifecycles' | 'scheduleNames' | 'logger'>,
): { add(lifecycles: readonly MeasuredLifecycle[]): void } {
  const models: LifecycleModel[] = []
  const addGauges = addingReports(() => scheduleGauges(registry, options))
  const add = (lifecycles: readonly MeasuredLifecycle[]) => {
    for (const { model } of lifecycles) if (!models.includes(model)) models.push(model)
    addGauges(lifecycles)
  }
  add(options.lifecycles)
  const scrape = oncePerScrape(async () => {
    try {
      const read = await withinScrape(readCensus(options.db))
      // A role that may not write that gets older censuses.
      await withinScrape(lookAtCensus(options.db, 'metrics')).catch(() => undefined)
      return read
    } catch (error) {
      options.logger?.warn(`metrics: the census could not be read: ${String(error)}`)
      return undefined
    }
  })
  censusGauges(registry, scrape, models)
  dutyGauges(registry, options.db)
  for (const own of ownOf(options.lifecycles)) ownGauges(registry, options.db, options.logger, own)
  return { add }
}

const ownOf = (lifecycles: readonly MeasuredLifecycle[]): OwnMetrics[] => [
  ...new Set(lifecycles.flatMap(({ metrics }) => metrics ?? [])),
]

/** Returns a function that adds the schedules among some lifecycles; without any, none of their metrics is shown. */
function addingReports(begin: () => AddReports): (lifecycles: readonly MeasuredLifecycle[]) => void {
  let add: AddReports | undefined
  return (lifecycles) => {
    for (const { reports } of lifecycles) {
      if (!reports) continue
      add ??= begin()
      add(reports)
    }
  }
}

/** Counts paused documents together, because there may be many. */
function pausedRows(paused: ReplicaStatus['paused']): Row<'lifecycle' | 'what' | 'phase'>[] {
  const counts = new Map<string, Row<'lifecycle' | 'what' | 'phase'>>()
  for (const { lifecycle, what, phase = '' } of paused) {
    const key = JSON.stringify([lifecycle, what, phase])
    counts.set(key, [{ lifecycle, what, phase }, (counts.get(key)?.[1] ?? 0) + 1])
  }
  return [...counts.values()]
}

function replicaGauges(registry: Registry, status: () => ReplicaStatus): void {
  const instruments = new Instruments(registry)
  const gauge = (name: string, help: string, value: (status: ReplicaStatus) => number, aggregator?: 'min') =>
    instruments.gauge(name, help, [], () => [[{}, value(status())]], aggregator)
  gauge('documents_held', 'Documents that this replica has leased', (now) => now.held)
  gauge('documents_queued', 'Documents that this replica has leased and not started on', (now) => now.queued)
  gauge('handlers_running', 'Handlers that are running in this replica', (now) => now.running)
  gauge(
    'handlers_abandoned',
    'Handlers of this replica that were given up on and are still running',
    (now) => now.abandoned,
  )
  gauge(
    'documents_skipped',
    'Documents that refuse writes and that this replica is leaving alone for a while; phaselock show says why',
    (now) => now.skipped,
  )
  gauge(
    'doorbell_listening',
    '1: the replica hears of new documents at once; 0: they wait for the next tick',
    (now) => (now.doorbell === 'deaf' || now.doorbell === 'off' ? 0 : 1),
    'min',
  )
  gauge(
    'replica_ready',
    '1: this replica (all workers) is ready; 0: see /readyz',
    (now) => (now.notReady.length === 0 ? 1 : 0),
    'min',
  )
  instruments.gauge(
    'replicas',
    'Live replicas that share the work, by version, as this replica knows them from its last look',
    ['version'],
    () => Object.entries(status().replicas).map(([version, count]) => [{ version }, count]),
    'max',
  )
  instruments.gauge(
    'paused',
    'Pauses in force by what is paused: all, lifecycle, phase (its name in the label phase) or document',
    ['lifecycle', 'what', 'phase'],
    () => pausedRows(status().paused),
    'max',
  )
  const ofLimits = (name: string, help: string, value: (held: SlotsHeld) => number | null, aggregator?: 'max') =>
    instruments.gauge(
      name,
      help,
      ['limit'],
      () =>
        status().limits.flatMap((held): Row<'limit'>[] => {
          const found = value(held)
          return found === null ? [] : [[{ limit: held.limit }, found]]
        }),
      aggregator,
    )
  ofLimits('limit_slots_used', 'Slots of a limit under which this replica holds documents', (held) => held.used)
  ofLimits('limit_slots_leased', 'Slots of a limit that this replica has, used or not', (held) => held.leased)
  ofLimits(
    'limit_paused',
    '1: people have paused the limit, as this replica knows',
    (held) => Number(held.paused),
    'max',
  )
  ofLimits('limit_slots', 'How many slots a limit has, as this replica knows', (held) => held.total, 'max')
  const { identity } = status()
  instruments.gauge('replica_info', 'The name of this replica in lockedBy; always 1', ['identity'], () => [
    [{ identity }, 1],
  ])
}
