export * from './errors.js'
export type { Hooks, Parked, Transition } from './hooks.js'
export type { FeatureLifecycle } from './lifecycle-catalog.js'
export { loadTelemetryHttp } from './load-telemetry-http.js'
export {
  LockAssert,
  LockExecutor,
  LockExtender,
  LockProviderUnavailable,
  type LocksAsyncOptions,
  LocksModule,
  type LocksOptions,
  SchedulerLock,
  type SchedulerLockOptions,
} from './locks/index.js'
export { PhaselockModule } from './module.js'
export { type NestLog, nestLogger } from './nest-logger.js'
export type {
  AppClient,
  AppConnection,
  AppDb,
  FeatureOptions,
  PhaselockModuleAsyncOptions,
  PhaselockModuleOptions,
} from './options.js'
export { TICK_JOB } from './runner.js'
export type { TelemetrySources } from './telemetry-http.js'
export {
  type BoundLifecycleOf,
  getLifecycleToken,
  getReplicaToken,
  InjectLifecycle,
  InjectReplica,
  MODULE_DATABASE,
  PHASELOCK_OPTIONS,
} from './tokens.js'
