import '../warnings.js'

export {
  LockAssert,
  LockExecutor,
  LockExtender,
  type LockObserver,
  type LockProvider,
  LockProviderUnavailable,
  memoryLocks,
} from '../../locks/index.js'
export { InvalidSchedulerLocks, LocksNotConfigured } from '../errors.js'
export type { LockDefaults, LockSettings, SchedulerLockOptions } from './lock-scope.js'
export { LocksModule } from './module.js'
export type { LocksAsyncOptions, LocksOptions } from './options.js'
export { SchedulerLock } from './scheduler-lock.js'
