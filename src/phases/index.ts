export { UnsupportedNode } from '../config/index.js'
export { DOORBELL_COLLECTION } from '../doorbell/index.js'
export { BadQueryPlan, type PlanFinding, TASK_LOCK_INIT_TIME } from '../lock/index.js'
export { type AnyHandler, BoundLifecycle } from './definition/bound-lifecycle.js'
export type { Deadline, LifecycleSettingsSpec, PhaseSpec, RuleSpec } from './definition/graph.js'
export { type Lifecycle, type LifecycleSpec, lifecycleOf } from './definition/lifecycle.js'
export { type LifecycleModel, type Phase, workingPhases } from './definition/model.js'
export { HANDLERS_NEED, type HandledPhase, handledPhases } from './definition/on-phase.js'
export type { LifecycleSettings } from './definition/settings.js'
export { sharedOptions } from './engine/check-options.js'
export type {
  BrokenDocument,
  BrokenReason,
  Claiming,
  ClockStepped,
  LeaseLoss,
  LoopBlocked,
  ReplicaEvents,
  ReplicaObserver,
  Rung,
  StepEnded,
  Ticked,
  Watched,
  Woken,
} from './engine/observer.js'
export { Replica } from './engine/replica.js'
export type { ReplicaOptions, ReplicaStatus, RunnableLifecycle } from './engine/replica-options.js'
export type { TickCounts } from './engine/tick/housekeeper.js'
export { lookRequestOf } from './engine/tick/tick.js'
export type { Alongside, AlongsideContext, News } from './engine/wake/alongside.js'
export {
  InvalidDocument,
  InvalidLifecycle,
  InvalidOutcome,
  InvalidReplicaOptions,
  LeaseLost,
  MissingIndexes,
  NotAttached,
  OverlappingLifecycles,
  StepAborted,
  StepTimeout,
  Unavailable,
} from './errors.js'
export { type HeldDocument, Holder, NoLongerHeld, type RunningStep } from './holder.js'
export { type Logger, silentLogger, withFields } from './logger.js'
export { type Outcome, type OwnFields, RESERVED_FIELDS } from './outcome.js'
export { OwnerClient } from './owner/owner-client.js'
export type {
  EntryOf,
  IdOf,
  InsertOptions,
  NewDocument,
  OwnerClientOptions,
  OwnerOptions,
  OwnerSession,
  OwnerVerdict,
  StateOf,
  StoredDocument,
  UnparkOptions,
} from './owner/owner-types.js'
export type { Handler, Progress, Step } from './step.js'
export { InvalidThread, standsFor, ThreadDied, type ThreadOptions, ThreadPool, thread } from './threads/index.js'
