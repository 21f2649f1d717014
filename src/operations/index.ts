export { nameOf } from './act/as-owner.js'
export * from './act/backfills.js'
export { listUndelivered, retryCallbacks } from './act/callbacks.js'
export { type Cancelled, cancelStep } from './act/cancel.js'
export { type LockTimeoutSet, setLockTimeout } from './act/lock-timeout.js'
export { heldLock, holderOf, type LockState, listLocks, releaseLock } from './act/locks.js'
export { findOrphans, type OrphanState, type OrphansReport, type OrphansRequest } from './act/orphans.js'
export { type Added, addDocument, removeDocument, setState, unparkDocument, wakeDocument } from './act/owner.js'
export { answerQuestion, listQuestions, MOST_QUESTIONS } from './act/questions.js'
export { listRegions, removeRegion, usesText } from './act/regions.js'
export { forgetLifecycle, listRegistrations, type Registration } from './act/registrations.js'
export {
  isOver,
  type ListRuns,
  type ListSchedules,
  listRuns,
  listSchedulePauses,
  listSchedules,
  pauseSchedules,
  removeSchedule,
  resumeSchedules,
  setSchedule,
  startRun,
  waitForRun,
} from './act/schedules.js'
export { ACTIONS, OPERATION_LIFECYCLE, type OperationDocument } from './bulk/operation.js'
export {
  abortOperation,
  beginOperation,
  listOperations,
  type OperationPreview,
  type OperationRequest,
  type OperationState,
  operationNamed,
  previewOperation,
  previewUndo,
  undoOperation,
} from './bulk/operations.js'
export { checkDatabase } from './check/check.js'
export { clockFindings } from './check/check-clocks.js'
export type { CheckResult, Finding } from './check/finding.js'
export { workOnOperations } from './foreground.js'
export { type Condition, conditionOf } from './inspect/condition.js'
export { COUNT_LIMIT, countPhases, countWaiting, type PhaseCount, type Waiting } from './inspect/count.js'
export { type Count, countText } from './inspect/count-text.js'
export { explain } from './inspect/explain.js'
export {
  type DocumentRef,
  type Found,
  findDocument,
  type ListOptions,
  listDocuments,
  type Shown,
  showDocument,
  TROUBLES,
} from './inspect/find.js'
export { type ListedLimit, listLimits } from './inspect/limits.js'
export { type AuditRequest, type EventsRequest, listAudit, listEvents } from './inspect/records.js'
export { type LifecycleOfReplica, listReplicas, type ReplicaState } from './inspect/replicas.js'
export { seenIn } from './inspect/seen.js'
export { type ListedPause, pausedText } from './pauses/change.js'
export { listPauses, pauseWork, resumeWork } from './pauses/pause.js'
export type { PauseRequest, PauseScope, ResumeRequest } from './pauses/scope.js'
export { operationLifecycle } from './public.js'
export { answerOverHttp, type HttpProblem, httpProblemOf, knownSender, questionsOverHttp } from './questions-http.js'
export {
  type LastSweep,
  type LifecycleStatus,
  lastSweep,
  operationsOpen,
  type SystemStatus,
  systemStatus,
} from './status/status.js'
export { recorded } from './system/audit.js'
export { idsMeantBy, idText, idTyped } from './system/document-id.js'
export { NotFound, OperationError, Refused, UsageError } from './system/errors.js'
export { fromExtendedJson } from './system/extended-json.js'
export { registeredLifecycles } from './system/lifecycles.js'
export { modelOf, type System } from './system/system.js'
