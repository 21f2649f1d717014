export { UnsupportedNode } from '../config/index.js'
export { DOORBELL_COLLECTION } from '../doorbell/index.js'
export { BadQueryPlan, type PlanFinding, type RecordedError, TASK_LOCK_INIT_TIME } from '../lock/index.js'
export type { AnyCallback, Callback, CallbackCall, CallbackEvent, Callbacks } from './callbacks.js'
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
  countsText,
  type RemoveChildrenOptions,
  worstOf,
} from './children.js'
export { type AnyHandler, BoundLifecycle } from './definition/bound-lifecycle.js'
export type { Deadline, LifecycleSettingsSpec, LimitSpec, PhaseSpec, RuleSpec } from './definition/graph.js'
export { type Lifecycle, type LifecycleSpec, lifecycleOf } from './definition/lifecycle.js'
export {
  declaredLimits,
  eachKeyOf,
  keyLimitName,
  keyNeedOf,
  type NamedLimit,
  namedLimits,
} from './definition/limits.js'
export {
  claimedPhases,
  endPhases,
  endsOf,
  type LifecycleModel,
  type Phase,
  tellingOf,
  whyUnknownState,
  workingPhases,
} from './definition/model.js'
export {
  CALLBACKS_NEED,
  type CallbackMethod,
  callbackMethods,
  HANDLERS_NEED,
  type HandledPhase,
  handledPhases,
} from './definition/on-phase.js'
export { modelRegistered, type RegisteredModel } from './definition/registered.js'
export type { LifecycleSettings } from './definition/settings.js'
export { runnableLifecycles, sharedOptions, someLifecycles } from './engine/check-options.js'
export type { SlotsHeld } from './engine/claim/leased-slots.js'
export type * from './engine/observer.js'
export { Replica } from './engine/replica.js'
export type {
  DoorbellStatus,
  PausedWork,
  ReplicaOptions,
  ReplicaStatus,
  RunnableLifecycle,
} from './engine/replica-options.js'
export { SharedPlaces } from './engine/run/shared-places.js'
export { SWEEP, type SweptLifecycle, UNHANDLED, type Unclaimed } from './engine/tick/duties.js'
export type { TickCounts } from './engine/tick/housekeeper.js'
export { lookRequestOf } from './engine/tick/tick.js'
export type { Alongside, AlongsideContext, News } from './engine/wake/alongside.js'
export * from './errors.js'
export { EVENTS_COLLECTION } from './events/event-writer.js'
export { type DocumentEvent, Events, type EventsQuery } from './events/events.js'
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
export type { TaskState, TriggerRule } from './flows/trigger.js'
export { type HeldDocument, Holder, NoLongerHeld, type RunningStep } from './holder.js'
export { type Logger, loggerOf, silentLogger, warningsLogger, withFields } from './logger.js'
export { type Ask, type Outcome, type OwnFields, RESERVED_FIELDS, type WithSet } from './outcome.js'
export { Audit, type AuditEntry, type AuditQuery } from './owner/audit.js'
export {
  ASKED_BY,
  AUDIT_COLLECTION,
  type AuditedAction,
  type AuditedEnd,
  type AuditOptions,
  type AuditOutcome,
  audited,
} from './owner/audit-log.js'
export { type LimitOptions, Limits, rateText } from './owner/limits.js'
export { OwnerClient } from './owner/owner-client.js'
export { ownersOf } from './owner/owner-pauses.js'
export type * from './owner/owner-types.js'
export type { RecordQuery } from './record-query.js'
export { causeLines, causesText, recordedError } from './recorded-error.js'
export type { ChildDocument, Handler, Progress, Step, StepAnswer } from './step.js'
export { InvalidThread, standsFor, ThreadDied, type ThreadOptions, ThreadPool, thread } from './threads/index.js'
export type { DocumentPhases, Reached, WaitForOptions } from './waits.js'
