export {
  type CheckOptions,
  type CheckResult,
  type ClockSample,
  checkDatabase,
  clockFindings,
  type Finding,
} from './check/index.js'
export { type Condition, type ConditionKind, conditionOf } from './condition.js'
export { idsMeantBy, idText } from './document-id.js'
export { NotFound, OperationError, Refused, UsageError } from './errors.js'
export { explain } from './explain.js'
