/**
 * Metrics for Prometheus, with `prom-client` (`npm install prom-client`).
 *
 * @example
 * ```ts
 * import { lifecycleOf, Replica } from 'phaselock'
 * import { connectDatabase } from 'phaselock/database'
 * import { replicaMetrics } from 'phaselock/telemetry'
 *
 * const site = lifecycleOf<{ _id: string }>().define({
 *   name: 'site',
 *   collection: 'Site',
 *   phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
 * })
 * const sites = site.handle({ Creating: async (_doc, step) => step.moveTo('Created') })
 *
 * const { db } = await connectDatabase()
 * const metrics = replicaMetrics({ db, lifecycles: [sites] })
 * const replica = new Replica({ db, lifecycles: [sites], observer: metrics.observer })
 * await replica.start()
 * console.log(await metrics.registry.metrics())
 * ```
 * @packageDocumentation
 */
export { type LockMetrics, type LockMetricsOptions, lockMetrics } from './metrics/lock-metrics.js'
export type { OwnMetric, OwnMetrics, OwnRow } from './metrics/own-metrics.js'
export { type ReplicaMetrics, type ReplicaMetricsOptions, replicaMetrics } from './metrics/replica-metrics.js'
export { type WorkersMetrics, type WorkersMetricsOptions, workersMetrics } from './metrics/workers-metrics.js'
