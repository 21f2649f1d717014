export { nearMisses } from './near-misses.js'
export {
  type CheckedSchedule,
  LONGEST_RUN_MS,
  readSchedule,
  type Timing,
  YEAR_10000,
} from './read-schedule.js'
export {
  type Json,
  OWNERS_FIELDS,
  type Retry,
  SCHEDULE_FIELDS,
  type ScheduleFields,
  TIMING_FIELDS,
} from './schedule-fields.js'
export { type Span, shown } from './span.js'
