export { type Done, nameOf } from './as-owner.js'
export { type AuditRequest, listAudit, recorded } from './audit.js'
export * from './backfills.js'
export { workOnOperations } from './bulk/foreground.js'
export {
  ACTIONS,
  OPERATION_LIFECYCLE,
  OPERATIONS_COLLECTION,
  type OperationDocument,
} from './bulk/operation.js'
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
export { listUntold, type Retried, retryCallbacks } from './callbacks.js'
export { type Cancelled, cancelStep } from './cancel.js'
export { checkDatabase } from './check/check.js'
export { clockFindings } from './check/check-clocks.js'
export type { CheckResult, Finding } from './check/finding.js'
export type { ChildrenOfLifecycle, ChildrenShown, ParentShown } from './children.js'
export { type Condition, conditionOf } from './condition.js'
export { COUNT_LIMIT, countPhases, countWaiting, type PhaseCount, type Waiting } from './count.js'
export { idsMeantBy, idText, idTyped } from './document-id.js'
export { NotFound, OperationError, Refused, UsageError } from './errors.js'
export { type EventsRequest, listEvents } from './events.js'
export { explain } from './explain.js'
export { fromExtendedJson } from './extended-json.js'
export {
  type DocumentRef,
  type Found,
  findDocument,
  type ListOptions,
  listDocuments,
  type Shown,
  showDocument,
  TROUBLES,
} from './find.js'
export { registeredLifecycles } from './lifecycles.js'
export { type ListedLimit, listLimits } from './limits.js'
export { type LockTimeoutSet, setLockTimeout } from './lock-timeout.js'
export { heldLock, holderOf, type LockState, type Locks, listLocks, releaseLock } from './locks.js'
export { findOrphans, type OrphanState, type OrphansReport, type OrphansRequest } from './orphans.js'
export { type Added, addDocument, removeDocument, setState, unparkDocument, type Woken, wakeDocument } from './owner.js'
export {
  type ListedPause,
  listPauses,
  type PauseRequest,
  type PauseScope,
  pausedText,
  pauseWork,
  type ResumeRequest,
  resumeWork,
} from './pause.js'
export { operationLifecycle } from './public.js'
export {
  type AnswerGiven,
  type AnswerRequest,
  answerQuestion,
  type ListedQuestion,
  type ListedQuestions,
  listQuestions,
  MOST_QUESTIONS,
} from './questions.js'
export { listRegions, removeRegion, usesText } from './regions.js'
export { forgetLifecycle, listRegistrations, type Registration } from './registrations.js'
export {
  type LeasedDocument,
  type LifecycleOfReplica,
  listReplicas,
  type ReplicaState,
  type ReplicasRequest,
} from './replicas.js'
export {
  isOver,
  type ListRuns,
  type ListSchedules,
  listRuns,
  listSchedules,
  pauseSchedules,
  removeSchedule,
  resumeSchedules,
  setSchedule,
  startRun,
  waitForRun,
} from './schedules.js'
export {
  type LastSweep,
  type LifecycleStatus,
  lastSweep,
  type OperationsOpen,
  operationsOpen,
  type SystemStatus,
  systemStatus,
} from './status.js'
export { modelOf, type System } from './system.js'
export type { Untold } from './untold.js'
