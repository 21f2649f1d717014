/**
 * Phaselock in a Nest app: handlers are methods, and the replica starts and stops with the app. It also exports the named locks of
 * `phaselock/locks/nest`.
 * Needs Nest (`npm install @nestjs/common @nestjs/core @nestjs/schedule reflect-metadata rxjs`).
 *
 * @example
 * ```ts
 * import { Injectable, Module } from '@nestjs/common'
 * import { ScheduleModule } from '@nestjs/schedule'
 * import { lifecycleOf } from 'phaselock'
 * import { PhaselockModule } from 'phaselock/nest'
 *
 * const mailbox = lifecycleOf<{ _id: string }>().define({
 *   name: 'mailbox',
 *   collection: 'Mailbox',
 *   phases: { Creating: { next: ['Created'] }, Created: { rest: true } },
 * })
 *
 * @Injectable()
 * class MailboxHandlers {
 *   @mailbox.OnPhase('Creating')
 *   async creating(_doc: typeof mailbox.$doc, step: typeof mailbox.$step.Creating) {
 *     return step.moveTo('Created')
 *   }
 * }
 *
 * @Module({ imports: [PhaselockModule.forFeature([mailbox])], providers: [MailboxHandlers] })
 * class MailboxModule {}
 *
 * @Module({ imports: [ScheduleModule.forRoot(), MailboxModule, PhaselockModule.forRoot()] })
 * export class AppModule {}
 * ```
 * @packageDocumentation
 */
export * from './errors.js'
export type { Hooks, Parked } from './hooks.js'
export { loadQuestionsHttp, loadTelemetryHttp } from './load-http.js'
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
export { nestLogger } from './nest-logger.js'
export type { FeatureOptions, PhaselockModuleAsyncOptions, PhaselockModuleOptions } from './options.js'
export type { QuestionsHttpRequest } from './questions-http.js'
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
