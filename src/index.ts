/**
 * What an app needs to define lifecycles, run them, and own their documents. The engine's parts aren't exported.
 *
 * @example
 * ```ts
 * import { lifecycleOf, Replica } from 'phaselock'
 * import { connectDatabase } from 'phaselock/database'
 *
 * interface Order {
 *   _id: string
 *   state?: 'Paid'
 *   parcel?: string
 * }
 *
 * const order = lifecycleOf<Order>().define({
 *   name: 'order',
 *   collection: 'Order',
 *   phases: { Open: { rest: true }, Packing: { next: ['Sent'] }, Sent: { rest: true } },
 *   rules: [{ when: 'Paid', from: ['Open'], goTo: 'Packing' }],
 * })
 * const orders = order.handle({
 *   Packing: async (doc, step) => step.moveTo('Sent', { set: { parcel: `parcel of ${doc._id}` } }),
 * })
 *
 * const { db } = await connectDatabase() // MONGODB_URI, else a local database
 * const replica = new Replica({ db, lifecycles: [orders] })
 * await replica.start()
 * await orders.insert({ _id: 'order-1' })
 * await orders.setState('order-1', 'Paid')
 * ```
 * @packageDocumentation
 */
export { MissingPackage, UnsupportedNode } from './config/index.js'
export {
  BadQueryPlan,
  type CallbackName,
  type ChildList,
  type ChildrenRule,
  type DocumentName,
  type HistoryEntry,
  type Limit,
  type PausedLimit,
  type PlanFinding,
  type Rate,
  type RecordedError,
  type RecordedOutcome,
  type SlotHolder,
  type StoredAnswer,
  type StoredAwaits,
  type StoredParent,
  type StoredQuestion,
  TASK_LOCK_INIT_TIME,
} from './lock/index.js'
export { type DoorbellMode, InvalidOptions } from './options/index.js'
export type {
  Alongside,
  AlongsideContext,
  AnswerOptions,
  AnswerResult,
  AnyHandler,
  Ask,
  AuditEntry,
  AuditOptions,
  AuditOutcome,
  AuditQuery,
  BrokenDocument,
  BrokenReason,
  Callback,
  CallbackCall,
  CallbackEvent,
  Callbacks,
  CalledBack,
  CancelOptions,
  CancelResult,
  Child,
  ChildCounts,
  ChildDocument,
  ChildrenDone,
  ChildrenDoneOptions,
  ChildrenOptions,
  ChildrenRemoved,
  ChildState,
  Claiming,
  ClockStepped,
  Deadline,
  DocumentPhases,
  DocumentQuestion,
  DoorbellStatus,
  DuplicateOptions,
  EntryOf,
  Flow,
  FlowHandlers,
  FlowRun,
  FlowSpec,
  FlowTask,
  FlowTaskSpec,
  FlowTasks,
  Handler,
  IdOf,
  InsertOptions,
  InsertResult,
  LeaseLoss,
  Lifecycle,
  LifecycleSettingsSpec,
  LifecycleSpec,
  LimitOptions,
  LimitSpec,
  Logger,
  LoopBlocked,
  NewChild,
  NewDocument,
  News,
  Outcome,
  OwnerClientOptions,
  OwnerOptions,
  OwnerSession,
  OwnerVerdict,
  OwnFields,
  PausedWork,
  PauseOptions,
  PauseResult,
  PauseScope,
  PhaseSpec,
  Progress,
  QuestionsOptions,
  Reached,
  RemoveChildrenOptions,
  ReplicaEvents,
  ReplicaObserver,
  ReplicaOptions,
  ReplicaStatus,
  ResumeOptions,
  RuleSpec,
  Rung,
  RunnableLifecycle,
  SlotsHeld,
  StateOf,
  StateOptions,
  Step,
  StepAnswer,
  StepEnded,
  StoredDocument,
  TaskState,
  ThreadOptions,
  TickCounts,
  Ticked,
  TriggerRule,
  UnparkOptions,
  WaitForOptions,
  Watched,
  WithSet,
  Woken,
} from './phases/index.js'
export {
  Audit,
  BoundLifecycle,
  CallbackTimeout,
  ChildExists,
  DocumentExists,
  EndlessSteps,
  flowOf,
  InvalidDocument,
  InvalidLifecycle,
  InvalidOutcome,
  InvalidReplicaOptions,
  InvalidThread,
  LeaseLost,
  Limits,
  lifecycleOf,
  MissingIndexes,
  NotAttached,
  OverlappingLifecycles,
  OwnerClient,
  Replica,
  StepAborted,
  StepTimeout,
  silentLogger,
  ThreadDied,
  thread,
  Unavailable,
  UnknownChild,
  UnknownState,
} from './phases/index.js'
export type { Clock, Duration } from './time/index.js'
