export { UnsupportedNode } from '../config/index.js'
export { DOORBELL_COLLECTION } from '../doorbell/index.js'
export { BadQueryPlan, lookAtCensus, type PlanFinding, type RecordedError, TASK_LOCK_INIT_TIME } from '../lock/index.js'
export type { Alongside, AlongsideContext } from './background/background.js'
export {
  type Census,
  type Count,
  type PhaseCensus,
  readCensus,
  type TroubleGroup,
} from './census/census.js'
export { newMemory } from './census/survey.js'
export { strayPhases, takeCensus, type Unclaimed, unknownAmong } from './census/take.js'
export { sumOf, Tally } from './census/tally.js'
export { type AnyHandler, BoundLifecycle } from './definition/bound-lifecycle.js'
export type { Deadline, LifecycleSettingsSpec, LimitSpec, PhaseSpec, RuleSpec } from './definition/graph.js'
export { type Lifecycle, type LifecycleSpec, lifecycleOf } from './definition/lifecycle.js'
export {
  declaredLimits,
  keyLimitName,
  keyNeedOf,
  type NamedLimit,
  namedLimits,
} from './definition/limits.js'
export {
  CALLBACKS_NEED,
  type CallbackMethod,
  callbackMethods,
  HANDLERS_NEED,
  handledPhases,
} from './definition/on-phase.js'
export { mostBeside } from './engine/claim/crash-isolation.js'
export { SharedSemaphore } from './engine/concurrency/step-semaphore.js'
export type { TickCounts } from './engine/lifecycle/tick-duties.js'
export type { SlotsHeld } from './engine/limits/limit-lease.js'
export type {
  ReplicaOptions,
  ReplicaStatus,
  RunnableLifecycle,
} from './engine/options/replica-options.js'
export { runnableLifecycles, sharedOptions, someLifecycles } from './engine/options/replica-options.js'
export { Replica } from './engine/replica.js'
export { CENSUS, SWEEP } from './engine/tick/census-duty.js'
export { UNHANDLED } from './engine/tick/duties.js'
export { lookRequestOf } from './engine/tick/tick.js'
export { type Cause, causeOfError } from './errors/cause.js'
export * from './errors/errors.js'
export { textOf } from './errors/kept-text.js'
export { causeLines, causesText, recordedError } from './errors/recorded-error.js'
export {
  ASKED_BY,
  AUDIT_COLLECTION,
  Audit,
  type AuditEntry,
  type AuditedAction,
  type AuditedEnd,
  type AuditOptions,
  type AuditQuery,
  audited,
  FORMER_REASON,
} from './events/audit.js'
export { type DocumentEvent, EVENTS_COLLECTION, Events, type EventsQuery } from './events/events.js'
export {
  type Flow,
  type FlowHandlers,
  type FlowRun,
  type FlowSpec,
  type FlowTask,
  type FlowTaskSpec,
  type FlowTasks,
  flowOf,
} from './flows/flow.js'
export type { TaskState, TriggerRule } from './flows/tasks.js'
export { graphDifferences } from './model/graph-difference.js'
export {
  claimedPhases,
  endPhases,
  endsOf,
  type LifecycleModel,
  type LimitNeed,
  notifyingOf,
  whyUnknownState,
  workingPhases,
} from './model/model.js'
export { modelRegistered, type RegisteredModel } from './model/registered.js'
export { eachKeyOf } from './model/settings.js'
export { type Trouble, troubleOf } from './model/trouble.js'
export type { DocumentPhases, Reached, WaitForOptions } from './outcome/outcome.js'
export { type Ask, type Outcome, type OwnFields, RESERVED_FIELDS, type WithSet } from './outcome/outcome.js'
export { type LimitOptions, Limits, rateText } from './owner/limits.js'
export { ownersOf } from './owner/owner-calls.js'
export { OwnerClient } from './owner/owner-client.js'
export type * from './owner/owner-types.js'
export { removeAndWake } from './owner/removal.js'
export { type Logger, loggerOf, silentLogger, warningsLogger, withFields } from './reporting/logger.js'
export type * from './reporting/observer.js'
export type { AnyCallback, Callback, CallbackCall, CallbackEvent, Callbacks } from './step/callbacks.js'
export {
  CHILD_STATES,
  type Child,
  type ChildCounts,
  type ChildrenDone,
  type ChildrenDoneOptions,
  type ChildrenOptions,
  type ChildrenRemoved,
  type ChildState,
  countsOf,
  type RemoveChildrenOptions,
  worstOf,
} from './step/children.js'
export { comesAt, type HeldDocument, Holder, NoLongerHeld, type RunningStep } from './step/holder.js'
export type { ChildDocument, Handler, Progress, Step, StepAnswer } from './step/step.js'
export { InvalidThread, standsFor, ThreadDied, type ThreadOptions, ThreadPool, thread } from './threads/index.js'
