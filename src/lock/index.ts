export { candidateCursor } from './candidates/candidates.js'
export { type DueRange, dueRanges, dueWithin } from './candidates/due-ranges.js'
export { type ClaimOrder, orderIndexes, RANKS } from './candidates/order.js'
export { claimUpdate } from './claim/claim-commands.js'
export { whyNotClaimable } from './claim/claim-trial.js'
export type { Claimed } from './claim/claim-writer.js'
export { type ClaimResult, Claims, type ValueLimit } from './claim/claims.js'
export {
  AS_IT_STANDS,
  asReadable,
  COMMITTED,
  isDatabaseError,
  phasesIn,
  readEach,
  readForOwner,
  readOwnFields,
  shownFields,
  shownProjection,
} from './documents/read.js'
export { canBeId, NO_ID, whyNotStorable } from './documents/storable.js'
export {
  idBytes,
  idKey,
  idText,
  isPlain,
  isValid,
  type OddField,
  oddFields,
  typeName,
  withParts,
} from './documents/values.js'
export {
  isDefiniteRefusal,
  isTooLarge,
  NEVER_SHARDED,
  perUpdate,
  type Refused,
  updateAround,
  updateMatching,
  updateNamed,
  type WritesOf,
  writeAround,
} from './documents/write.js'
export { type EndProgress, EndWriter } from './end/end-writer.js'
export { MissingIndex, onClaimIndex, onIndex, STAND_IN_INDEX, stagesOf } from './indexes/indexes.js'
export { futureLeases, redateLeases, redatePauses } from './lease/future-leases.js'
export {
  Claimant,
  ClaimTokens,
  claimFence,
  isLeaseUnmoved,
  Lease,
  type LeaseMarking,
  leaseUnmoved,
  parseToken,
  Renewals,
  uncountClaims,
  underClaimOf,
} from './lease/lease.js'
export * from './lease/lease-state.js'
export {
  type ClockStep,
  ClockSteps,
  type DeadlineHold,
  ServerClock,
  STEP_SLACK_MS,
  underHold,
} from './lease/server-clock.js'
export * from './limits/ask.js'
export * from './limits/limits.js'
export * from './look/children.js'
export { type DutyQuery, HANDLED_EVERY_MS, type LookRequest, type LookResult, Looks } from './look/look.js'
export { OVERDUE_MS, SWEEP_LIMIT, type Swept, sweep } from './look/sweep.js'
export * from './move/answers.js'
export { type Insertion, type InsertKind, ON_DUPLICATE, type OnDuplicate, upsertDocument } from './move/insertion.js'
export * from './move/operation-writes.js'
export * from './move/owner-writes.js'
export * from './move/removal.js'
export { removeFinal } from './move/removal.js'
export { type Rename, renameLook, renameUpdate, ruleLook, ruleUpdate, type StateRule } from './move/rules.js'
export * from './outbox/deliveries.js'
export {
  CALLBACK_NAMES,
  callbacksAfter,
  type EntryName,
  isLastEntry,
  isRemovedPhase,
  MOST_OPEN,
  type Outbox,
  type OutboxEntry,
  outboxIn,
  removedPhase,
} from './outbox/outbox.js'
export { type PendingInsert, pendingState } from './record/pending-insert.js'
export {
  type AskedQuestion,
  answerIn,
  asksTheSame,
  awaitsIn,
  type ChildList,
  type ChildrenRule,
  childListsIn,
  childrenFromIn,
  type DocumentName,
  hasPendingInsert,
  isOfFormer,
  parentIn,
  questionIn,
  type StoredAnswer,
  type StoredAwaits,
  type StoredParent,
  type StoredQuestion,
  sleepsForever,
  waitersIn,
  whyUnanswerable,
} from './record/progress.js'
export {
  type EndKind,
  errorPauseMs,
  type HistoryEntry,
  historyWith,
  pauseMs,
  RECORDED_OUTCOMES,
  type RecordedError,
  type RecordedOutcome,
  type StepEnd,
  stepPauseMs,
  type Verdict,
} from './record/step-end.js'
export * from './registry/cancels.js'
export * from './registry/duties.js'
export { endLeasesOf, heldByReplica, leasesOf } from './registry/ended-process.js'
export * from './registry/in-force.js'
export * from './registry/lock-timeout.js'
export * from './registry/pauses.js'
export * from './registry/pauses.js'
export * from './registry/replicas.js'
export { PRESENT_EVERY_MS, PRESENT_REPLICAS, type PresentReplica, sayGone, sayPresent } from './registry/replicas.js'
export { dateUndated, RepairLook } from './repair/repair.js'
export { RefusingDocuments } from './select/refusing-documents.js'
export type { Candidates, Reach, SelectionPolicy } from './select/selection.js'
export { type Membership, WorkSplit } from './select/work-split.js'
export { collectionExists, ensureLockIndexes, hasIndex, moreIndexes, unusableLockIndexes } from './setup/indexes.js'
export { BadQueryPlan, checkPlans, describeFinding, type PlanFinding } from './setup/plan-check.js'
export * from './terms/terms.js'
