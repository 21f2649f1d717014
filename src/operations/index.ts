export { type Done, type Force, nameOf } from './as-owner.js'
export {
  type CheckOptions,
  type CheckResult,
  type ClockSample,
  checkDatabase,
  clockFindings,
  type Finding,
} from './check/index.js'
export { type Condition, type ConditionKind, conditionOf } from './condition.js'
export { COUNT_LIMIT, countPhases, countWaiting, type PhaseCount, type Waiting } from './count.js'
export { idsMeantBy, idText } from './document-id.js'
export { NotFound, type Obstacle, OperationError, Refused, UsageError } from './errors.js'
export { explain } from './explain.js'
export { type DocumentRef, type Found, findDocument } from './find.js'
export { type ListOptions, listDocuments } from './list.js'
export { type LockTimeoutSet, setLockTimeout } from './lock-timeout.js'
export { heldLock, holderOf, type LockState, type Locks, listLocks, releaseLock } from './locks.js'
export { findOrphans, type OrphanState, type OrphansReport, type OrphansRequest } from './orphans.js'
export {
  addDocument,
  removeDocument,
  type StateSet,
  setState,
  unparkDocument,
  type Woken,
  wakeDocument,
} from './owner.js'
export { listRegions, type RegionState, type RegionUse, removeRegion, usesText } from './regions.js'
export { isOver, type ListRuns, listRuns, startRun, waitForRun } from './runs.js'
export {
  type ListSchedules,
  listSchedules,
  type PauseRequest,
  pauseSchedules,
  removeSchedule,
  resumeSchedules,
  setSchedule,
} from './schedules.js'
export { type Shown, showDocument } from './show.js'
export { modelOf, type System } from './system.js'
