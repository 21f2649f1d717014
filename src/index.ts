/**
 * The main entry, for apps that define lifecycles, run them, and own their documents. The engine's parts aren't exported.
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
 *   rules: [{ when: 'Paid', from: ['Open'], moveTo: 'Packing' }],
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
export { keepHeapLean } from './lean-heap.js'
export { BadQueryPlan, type Limit, type Rate, TASK_LOCK_INIT_TIME } from './lock/index.js'
export { InvalidOptions } from './options/index.js'
export type {
  Alongside,
  AlongsideContext,
  AnswerOptions,
  AnswerResult,
  AnyHandler,
  Ask,
  AuditEntry,
  AuditQuery,
  BrokenDocument,
  Callback,
  CallbackCall,
  CallbackEvent,
  Callbacks,
  CancelOptions,
  CancelResult,
  Child,
  ChildDocument,
  ChildrenDone,
  ChildrenDoneOptions,
  ChildrenOptions,
  ChildrenRemoved,
  ChildState,
  Deadline,
  DocumentEvent,
  DocumentPhases,
  DocumentQuestion,
  DuplicateOptions,
  EntryOf,
  EventsQuery,
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
  NewChild,
  NewDocument,
  Outcome,
  OwnerClientOptions,
  OwnerOptions,
  OwnerSession,
  OwnerVerdict,
  OwnFields,
  PauseOptions,
  PauseResult,
  PauseScope,
  PhaseSpec,
  Progress,
  QuestionsOptions,
  Reached,
  RemoveChildrenOptions,
  ReplicaObserver,
  ReplicaOptions,
  ReplicaStatus,
  ResumeOptions,
  RuleSpec,
  RunnableLifecycle,
  StateOf,
  StateOptions,
  Step,
  StepAnswer,
  StepEnded,
  StoredDocument,
  TaskState,
  ThreadOptions,
  TickCounts,
  TriggerRule,
  UnparkOptions,
  WaitForOptions,
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
  Events,
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
