export { COUNT_LIMIT } from '../operations/index.js'
export { type LockMetrics, type LockMetricsOptions, type LockNames, lockMetrics } from './metrics/lock-metrics.js'
export {
  type MeasuredLifecycle,
  type ReplicaMetrics,
  type ReplicaMetricsOptions,
  replicaMetrics,
} from './metrics/replica-metrics.js'
export { type WorkersMetrics, type WorkersMetricsOptions, workersMetrics } from './metrics/workers-metrics.js'
