export { errorPauseMs, pauseMs } from './back-off.js'
export { type BackOffRule, DEFAULT_BACK_OFF } from './back-off-rule.js'
export { candidateCursors, findCandidates } from './candidates.js'
export { onClaimIndex, STAND_IN_INDEX } from './claim-index.js'
export { whyNotClaimable } from './claim-trial.js'
export { claimUpdate } from './claim-update.js'
export { type Claimed, type ClaimResult, Claims, type NamedResult } from './claims.js'
export { type ClockHold, type ClockStep, ClockSteps, STEP_SLACK_MS } from './clock-steps.js'
export {
  CLAIM_INDEX,
  HISTORY_LIMIT,
  ID_INDEX,
  LEAST_PAUSE_MS,
  PARKED_AT,
  STATE_INDEX,
  TASK_LOCK_INIT_TIME,
} from './constants.js'
export { type DueRange, dueRanges, dueWithin } from './due-ranges.js'
export { type EndProgress, EndWriter } from './end-writer.js'
export { endLeasesOf, heldByReplica, type LeasedDocuments } from './ended-process.js'
export { claimFence } from './fence.js'
export { futureLeases, isFromTheFuture, redateLeases } from './future-leases.js'
export { type HistoryEntry, historyWith, type RecordedOutcome } from './history.js'
export { idBytes, idKey } from './id-key.js'
export { ensureLockIndexes } from './indexes.js'
export { Lease } from './lease.js'
export {
  dueBoundAt,
  hasToken,
  isDue,
  isNotHeld,
  isParked,
  LEASE_FIELDS,
  type LeaseState,
  type LeaseTerms,
  leaseStateExpression,
  leaseStateOf,
  NEVER_DUE,
  NEVER_DUE_TYPES,
  notAfter,
  PARKED,
  PUT_TO_SLEEP,
  sleepsFor,
  WITHOUT_TOKEN,
  wasPutToSleep,
} from './lease-state.js'
export { isLeaseUnmoved, type LeaseMarking, leaseUnmoved } from './legacy-writers.js'
export {
  brokenLockTimeout,
  changeLockTimeout,
  encodeSleepsAnew,
  KNOWN_FOR_MS,
  LIFECYCLES_COLLECTION,
  type LockTimeoutChange,
  type LockTimeoutInForce,
  lockTimeoutAt,
  readLockTimeouts,
  standInForLockTimeout,
} from './lock-timeout.js'
export { type Chore, HANDLED_EVERY_MS, type LookRequest, type LookResult, Looks } from './look.js'
export { MissingIndex, onIndex } from './missing-index.js'
export { CHECKED_FIELDS, type OddField, oddFields } from './odd-fields.js'
export {
  DUE_AND_NOBODYS,
  freeFromTheFuture,
  type OwnerWriteOptions,
  removeUnlessHeld,
  type Sleeper,
  setState,
  type Unwritten,
  unpark,
  wake,
  wakeSleepers,
  whyUnwritten,
} from './owner-writes.js'
export { BadQueryPlan, checkPlans, describeFinding, type PlanFinding } from './plan-check.js'
export { stagesOf } from './plan-scans.js'
export { PRESENT_EVERY_MS, sayGone, sayPresent } from './presence.js'
export { type Protocol, SAFE_PROTOCOL } from './protocol.js'
export { AS_IT_STANDS, asReadable, readEach, readOwnFields } from './read-each.js'
export { removeFinal } from './removal.js'
export { type Rename, renameLook, renameUpdate } from './rename.js'
export { Renewals } from './renewal.js'
export { type Repaired, RepairLook, type RepairResult } from './repair-look.js'
export { ruleLook, ruleUpdate, type StateRule } from './rule-update.js'
export { type DeadlineHold, ServerClock } from './server-clock.js'
export { type Standing, WorkSplit } from './share.js'
export { RefusingDocuments } from './skip-list.js'
export type { Arrival, EndKind, RecordedError, StepEnd, Verdict } from './step-end.js'
export { hasOurShape, literal, type Only, perDocument, type Terms, termsOf } from './terms.js'
export { ClaimTokens, parseToken, underClaimOf } from './token.js'
export { isValid, typeName } from './type-name.js'
export { uncountClaims } from './uncount.js'
export { collectionExists, type UnusableIndex, unusableLockIndexes } from './unusable-indexes.js'
export { idsOf, type Refused, updateApart, type WritesOf, writeAround } from './write-around.js'
export { isDatabaseError } from './write-error.js'
