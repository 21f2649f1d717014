/**
 * Named locks in a Nest app: methods that one replica runs at a time.
 * Needs Nest (`npm install @nestjs/common @nestjs/core reflect-metadata rxjs`).
 *
 * @example
 * ```ts
 * import { Injectable, Module } from '@nestjs/common'
 * import { LocksModule, SchedulerLock } from 'phaselock/locks/nest'
 *
 * @Injectable()
 * class Reports {
 *   @SchedulerLock({ name: 'nightly-reports', lockAtMostFor: '30m' })
 *   async nightly(): Promise<void> {}
 * }
 *
 * @Module({ imports: [LocksModule.forRoot({ url: 'redis://redis:6379' })], providers: [Reports] })
 * export class AppModule {}
 * ```
 * @packageDocumentation
 */
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
export type { SchedulerLockOptions } from './lock-scope.js'
export { LocksModule } from './module.js'
export type { LocksAsyncOptions, LocksOptions } from './options.js'
export { SchedulerLock } from './scheduler-lock.js'
