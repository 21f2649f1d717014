/**
 * Schedules in a Nest app: tasks are methods, with their dependencies injected.
 * Needs Nest (`npm install @nestjs/common @nestjs/core @nestjs/schedule reflect-metadata rxjs`).
 *
 * @example
 * ```ts
 * import { Injectable, Module } from '@nestjs/common'
 * import { ScheduleModule } from '@nestjs/schedule'
 * import { PhaselockModule } from 'phaselock/nest'
 * import { Scheduled, SchedulesModule } from 'phaselock/schedules/nest'
 *
 * @Injectable()
 * class Cleanup {
 *   @Scheduled({ cron: '0 3 * * *', timezone: 'Europe/Berlin' })
 *   async nightly(): Promise<void> {}
 * }
 *
 * @Module({
 *   imports: [ScheduleModule.forRoot(), PhaselockModule.forRoot(), SchedulesModule.forRoot()],
 *   providers: [Cleanup],
 * })
 * export class AppModule {}
 * ```
 * @packageDocumentation
 */
export { SchedulesModule, type SchedulesModuleOptions } from './module.js'
export { Scheduled, type ScheduledOptions, ScheduledTask } from './scheduled.js'
