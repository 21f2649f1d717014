import type { Db } from 'mongodb'
import { AggregatorRegistry, Registry } from 'prom-client'
import { checkOptions, t } from '../../options/index.js'
import type { Logger } from '../../phases/index.js'
import { Instruments } from './instruments.js'
import { documentMetrics, documentOptions, type MeasuredLifecycle } from './replica-metrics.js'

/** Options of `workersMetrics`: for the process that supervises workers. */
export interface WorkersMetricsOptions {
  /** The database of the documents, which are counted at each scrape. */
  readonly db: Db
  /** The lifecycles whose documents are counted. */
  readonly lifecycles: readonly MeasuredLifecycle[]
  /** Gets a warning if documents can't be counted. Default: no logger. */
  readonly logger?: Logger | undefined
  /** Returns `registry.getMetricsAsJSON()` of each worker that answers, as it came over a channel. */
  readonly ofWorkers: () => Promise<(readonly unknown[])[]>
  /** Returns the number of wanted workers, of working ones, and of restarts. */
  readonly counts: () => { readonly wanted: number; readonly working: number; readonly restarts: number }
}

const workersOptions = t.object({
  ...documentOptions,
  ofWorkers: t.aFunction<WorkersMetricsOptions['ofWorkers']>(),
  counts: t.aFunction<WorkersMetricsOptions['counts']>(),
} satisfies t.TypesOf<WorkersMetricsOptions>)

/** The metrics of several worker processes as one text for Prometheus. */
export interface WorkersMetrics {
  /** The text for Prometheus. */
  metrics(): Promise<string>
}

/** The workers' metrics, added up (for readiness the minimum), with the counts of documents and of the workers themselves. @throws InvalidOptions */
export function workersMetrics(given: WorkersMetricsOptions): WorkersMetrics {
  const options: WorkersMetricsOptions = checkOptions('workersMetrics', workersOptions, given)
  const { counts } = options
  const registry = new Registry()
  documentMetrics(registry, options)
  const instruments = new Instruments(registry)
  instruments.gauge('workers', 'Worker processes: wanted, and working now', ['which'], () => {
    const { wanted, working } = counts()
    return [
      [{ which: 'wanted' }, wanted],
      [{ which: 'working' }, working],
    ]
  })
  const help = 'Worker processes that ended by themselves and were restarted'
  let told = 0
  const restarted = instruments.counter('worker_restarts_total', help, [], () => {
    const { restarts } = counts()
    restarted.inc(restarts - told)
    told = restarts
  })
  return {
    async metrics() {
      const added = AggregatorRegistry.aggregate((await options.ofWorkers()) as object[])
      return `${await registry.metrics()}\n${await added.metrics()}`
    },
  }
}
