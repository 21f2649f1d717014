import type { Db } from 'mongodb'
import { AggregatorRegistry, Counter, Gauge, Registry } from 'prom-client'
import type { Logger } from '../../phases/index.js'
import { documentMetrics, type MeasuredLifecycle } from './replica-metrics.js'

export interface WorkersMetricsOptions {
  readonly db: Db
  readonly lifecycles: readonly MeasuredLifecycle[]
  readonly logger?: Logger | undefined
  /** Of each worker that answers: `registry.getMetricsAsJSON()`, as it came over a channel. */
  readonly ofWorkers: () => Promise<(readonly unknown[])[]>
  readonly counts: () => { readonly wanted: number; readonly working: number; readonly restarts: number }
}

/** The metrics of several worker processes as one text for Prometheus. */
export interface WorkersMetrics {
  metrics(): Promise<string>
}

/** What the workers say, added up (of readiness the least), with the counts of documents and of workers themselves. */
export function workersMetrics(options: WorkersMetricsOptions): WorkersMetrics {
  const registry = new Registry()
  documentMetrics(registry, options)
  workerGauges(registry, options)
  return {
    async metrics() {
      const told = (await options.ofWorkers()) as object[]
      const added = AggregatorRegistry.aggregate(told)
      return `${await registry.metrics()}\n${await added.metrics()}`
    },
  }
}

function workerGauges(registry: Registry, { counts }: WorkersMetricsOptions): void {
  const registers = [registry]
  new Gauge({
    name: 'phaselock_workers',
    help: 'Worker processes: wanted, and working now',
    labelNames: ['which'],
    registers,
    collect() {
      const { wanted, working } = counts()
      this.set({ which: 'wanted' }, wanted)
      this.set({ which: 'working' }, working)
    },
  })
  let told = 0
  new Counter({
    name: 'phaselock_worker_restarts_total',
    help: 'Worker processes that had ended by themselves and were started again',
    registers,
    collect() {
      const { restarts } = counts()
      this.inc(restarts - told)
      told = restarts
    },
  })
}
