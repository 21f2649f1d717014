export { nearMisses } from './near-misses.js'
export {
  type CheckedSchedule,
  LONGEST_RUN_MS,
  readSchedule,
  shown,
  TASK_NAME,
  type Timing,
  YEAR_10000,
} from './read-schedule.js'
export {
  type Json,
  OWNERS_FIELDS,
  type Retry,
  SCHEDULE_FIELDS,
  type ScheduleFields,
  type Span,
  TIMING_FIELDS,
} from './schedule-fields.js'
