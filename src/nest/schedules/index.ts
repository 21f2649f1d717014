export { SchedulesModule, type SchedulesModuleOptions } from './module.js'
export { Scheduled, type ScheduledOptions, ScheduledTask } from './scheduled.js'
