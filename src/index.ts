// Not by its index: that would load what all operations need.
export {
  type CheckOptions,
  type CheckResult,
  type ClockSample,
  checkDatabase,
  clockFindings,
  type Finding,
} from './operations/check/index.js'
export { type Condition, type ConditionKind, conditionOf } from './operations/condition.js'
export { explain } from './operations/explain.js'
export * from './phases/index.js'
