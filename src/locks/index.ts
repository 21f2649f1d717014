// This index loads no driver: a process with its locks in Redis never loads MongoDB's driver (`phaselock/locks`).
export { holderIdentity } from './acquisition.js'
export { ActiveLock } from './active-lock.js'
export { type LockMode, PROVIDER_KINDS, type ProviderKind } from './choose-provider.js'
export { InvalidLockDuration, type LockDuration, lockDurationMs } from './durations.js'
export {
  InvalidLockConfig,
  InvalidLockProvider,
  LockLost,
  LockProviderUnavailable,
  NotLocked,
  StaleLockHandle,
} from './errors.js'
export { type CheckedLockConfig, checkedLockConfig, type LockConfig } from './lock-config.js'
export {
  checkedExecution,
  type ExecutionConfig,
  type ExecutionResult,
  type HeldLockContext,
  LockExecutor,
} from './lock-executor.js'
export { type LockObserver, observeLocks } from './lock-observer.js'
export { LockAssert, LockExtender } from './lock-path.js'
export type {
  LockProvider,
  LockRecord,
  LockRecords,
  OperableLockProvider,
  SimpleLock,
} from './lock-provider.js'
export { type LockDb, type LockProviderOptions, mongoLockProvider, openLockProvider } from './open-provider.js'
export { memoryLocks } from './providers/memory.js'
export type { PostgresPool } from './providers/postgres.js'
export type { RedisClient } from './providers/redis.js'
