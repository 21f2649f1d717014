/** What people ask of a running system. Functions that act on a system are those of checked.ts; a new one goes there. */
export { nameOf } from './act/as-owner.js'
export type { Cancelled } from './act/cancel.js'
export type { LockTimeoutSet } from './act/lock-timeout.js'
export { holderOf, type LockState } from './act/locks.js'
export type { OrphanState, OrphansReport, OrphansRequest } from './act/orphans.js'
export type { Added } from './act/owner.js'
export { MOST_QUESTIONS } from './act/questions.js'
export { usesText } from './act/regions.js'
export type { Registration } from './act/registrations.js'
export { isOver, type ListRuns, type ListSchedules } from './act/schedules.js'
export { ACTIONS, OPERATION_LIFECYCLE, type OperationDocument } from './bulk/operation.js'
export type { OperationState } from './bulk/operations.js'
export type { OperationPreview } from './bulk/preview.js'
export type { BlastRadius } from './bulk/radius.js'
export type { OperationRequest } from './bulk/request.js'
export type { AckRequest } from './causes/acknowledge.js'
export type { Causes } from './causes/causes.js'
export { quietText } from './causes/quiet.js'
export { type CauseRow, causeText, isAcknowledged } from './causes/row.js'
export { clockFindings } from './check/check-clocks.js'
export type { CheckResult, Finding } from './check/finding.js'
export * from './checked.js'
export { type Condition, conditionOf } from './inspect/condition.js'
export {
  ageToSay,
  type CensusRead,
  type CensusRequest,
  COUNT_LIMIT,
  type PhaseCount,
  phaseCounts,
} from './inspect/count.js'
export { type Count, countText } from './inspect/count-text.js'
export { explain } from './inspect/explain.js'
export type { DocumentRef, Found } from './inspect/find.js'
export {
  type CauseFlow,
  type Flow,
  type FlowInterval,
  type FlowRequest,
  type PhaseFlow,
  sparkline,
} from './inspect/flow.js'
export type { ListedLimit } from './inspect/limits.js'
export type { Listed, ListOptions } from './inspect/list.js'
export { LISTED_CONDITIONS, type ListFilters } from './inspect/list-plan.js'
export type { AuditRequest, EventsRequest } from './inspect/records.js'
export type { LifecycleOfReplica, ReplicaState } from './inspect/replicas.js'
export { seenIn } from './inspect/seen.js'
export { TROUBLES } from './inspect/standing.js'
export type { MixedLifecycle, RunningGraph } from './inspect/versions.js'
export { type ListedPause, pausedText } from './pauses/change.js'
export type { PauseRequest, PauseScope, ResumeRequest } from './pauses/scope.js'
export { operationLifecycle } from './public.js'
export { answerOverHttp, type HttpProblem, httpProblemOf, knownSender, questionsOverHttp } from './questions-http.js'
export type { LifecycleStatus, SystemStatus } from './status/status.js'
export { recorded } from './system/audit.js'
export { idsMeantBy, idText, idTyped } from './system/document-id.js'
export { NotFound, OperationError, Refused, UsageError } from './system/errors.js'
export { fromExtendedJson } from './system/extended-json.js'
export { registeredLifecycles } from './system/lifecycles.js'
export { modelOf, type System } from './system/system.js'
export type { Changes } from './why/changes.js'
export { PREDICTED_ACTIONS, type PredictedAction, type Prediction, type PredictRequest } from './why/predict.js'
export type { Shown } from './why/show.js'
export { TERMS, type Term, type TermName, type Verdict } from './why/term.js'
export type { Why } from './why/why.js'
