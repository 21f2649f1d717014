/**
 * Operations on many documents (docs/bulk-operations.md): begun by an app, and worked on by its own replicas.
 *
 * @example
 * ```ts
 * import { lifecycleOf, Replica } from 'phaselock'
 * import { connectDatabase } from 'phaselock/database'
 * import { operationLifecycle, Operations } from 'phaselock/operations'
 *
 * const order = lifecycleOf().define({
 *   name: 'order',
 *   collection: 'Order',
 *   phases: { Packing: { next: ['Sent'] }, Sent: { rest: true } },
 * })
 * const orders = order.handle({ Packing: async (_doc, step) => step.moveTo('Sent') })
 *
 * const { db } = await connectDatabase()
 * const replica = new Replica({ db, lifecycles: [orders, operationLifecycle({ db })] })
 * await replica.start()
 *
 * const operations = new Operations({ db, lifecycles: [order] })
 * const selection = { lifecycle: 'order', filter: { printer: 'p7' }, parked: true }
 * await operations.begin({ action: 'unpark', selection, by: 'ana', reason: 'p7 is back' })
 * ```
 * @packageDocumentation
 */
import type { Db, Document } from 'mongodb'
import { checkOptions, type DoorbellMode, processOptions, t } from '../options/index.js'
import { ASKED_BY, FORMER_REASON, type LifecycleModel, type RunnableLifecycle } from '../phases/index.js'
import { ACTIONS, type OperationDocument, operationDefinition } from './bulk/operation.js'
import {
  abortOperation,
  beginOperation,
  listOperations,
  MOST,
  type OperationState,
  previewOperation,
  previewUndo,
  undoOperation,
} from './bulk/operations.js'
import type { OperationPreview } from './bulk/preview.js'
import type { ActionOptions, OperationRequest } from './bulk/request.js'
import type { Selection } from './bulk/selection.js'
import { MOST_WATCHED } from './bulk/trial.js'
import { workOnPage } from './bulk/work.js'
import type { System } from './system/system.js'

export type { OperationAction, OperationDocument } from './bulk/operation.js'
export type { OperationState } from './bulk/operations.js'
export type { OperationPreview } from './bulk/preview.js'
export type {
  BlastRadius,
  LeftAlone,
  LimitTime,
  OpenChildren,
  PhaseTime,
  RadiusGroup,
  RadiusTime,
} from './bulk/radius.js'
export type { OperationRequest } from './bulk/request.js'
export type { Selection } from './bulk/selection.js'
export { NotFound, type Obstacle, OperationError, Refused, UsageError } from './system/errors.js'

/** The options of `operationLifecycle`. */
export interface OperationLifecycleOptions {
  /** The database of the operations, and of the documents that they act on. */
  readonly db: Db
  /** `off`: replicas aren't notified of documents that an operation has made due, and find them with their next tick. Default `auto`. */
  readonly doorbell?: DoorbellMode | undefined
}

const toWork = t.partOf({
  db: t.aDatabase,
  doorbell: processOptions.doorbell,
} satisfies t.TypesOf<OperationLifecycleOptions>)

/**
 * The lifecycle of operations on many documents with its handler, for a replica that works on them beside its own lifecycles. It works on
 * operations as they are begun, and on those whose command was ended or killed.
 * @example new Replica({ db, lifecycles: [orders, operationLifecycle({ db })] })
 * @throws InvalidOptions
 */
export function operationLifecycle(options: OperationLifecycleOptions): RunnableLifecycle {
  const { db, doorbell } = checkOptions('operationLifecycle', toWork, options)
  return operationDefinition.handle({
    Running: (doc, step) => workOnPage({ db, doorbell }, doc as OperationDocument, step),
  }) as never
}

/** The options of `new Operations(...)`. */
export interface OperationsOptions {
  /** The database of the documents. */
  readonly db: Db
  /** The lifecycles whose documents operations may select, with their handlers or without. */
  readonly lifecycles: readonly { readonly model: LifecycleModel }[]
  /** `off`: replicas find an operation with their next tick. Default `auto`: they are notified immediately. */
  readonly doorbell?: DoorbellMode | undefined
  /** If true, the audit keeps an entry of each that is started, aborted or undone (docs/audit.md), for 90 days. Default: false. */
  readonly audit?: boolean | undefined
}

/** The author and the reason of a request. */
export interface AskedBy {
  /** The author: at most 200 characters. */
  readonly by: string
  /** The reason: at most 500 characters. Default: none is given. */
  readonly reason?: string | undefined
}

/** The options of a list of operations. */
export interface OperationsQuery {
  /** If true, only those that haven't ended. Default: all. */
  readonly open?: boolean | undefined
  /** The maximum number of operations, 1 to 10,000: the newest. Default 50. */
  readonly limit?: number | undefined
}

const parts = t.object({
  db: t.aDatabase,
  lifecycles: t.checked(
    t.list(
      t.aLifecycle<{ readonly model: LifecycleModel }>(
        'a lifecycle (`lifecycleOf().define({ ... })`, with its handlers or without)',
      ),
      t.expecting('a list of lifecycles'),
    ),
    ({ length }) => length > 0,
    'expected a list of lifecycles, got an empty one',
  ),
  doorbell: processOptions.doorbell,
  audit: t.withDefault(t.flag, false),
} satisfies t.TypesOf<OperationsOptions>)

const fieldsOf = (what: string) =>
  t.where<Document>(
    (value) => Object.prototype.toString.call(value) === '[object Object]' && !('_bsontype' in (value as object)),
    t.expecting(what),
  )
const aRequester = t.object(ASKED_BY satisfies t.TypesOf<AskedBy>)
const anOperation = t.object({ id: t.name })
const query = t.object({
  open: t.optional(t.flag),
  limit: t.withDefault(t.whole(1, 10_000), 50),
} satisfies t.TypesOf<OperationsQuery>)

const requestOf = (lifecycles: readonly string[]) =>
  t.object({
    id: t.optional(t.text),
    action: t.oneOf(ACTIONS),
    selection: t.object({
      lifecycle: t.oneOf(lifecycles),
      filter: t.optional(fieldsOf('a filter of MongoDB')),
      phase: t.optional(t.text),
      state: t.optional(t.text),
      parked: t.optional(t.flag),
      bugs: t.optional(t.flag),
      failing: t.optional(t.flag),
      waiting: t.optional(t.flag),
      on: t.optional(t.text),
      cause: t.optional(t.text),
      all: t.optional(t.flag),
    } satisfies t.TypesOf<Selection>),
    options: t.optional(
      t.object({
        state: t.optional(t.text),
        force: t.optional(t.flag),
        phase: t.optional(t.text),
        step: t.optional(t.text),
        set: t.optional(fieldsOf('an object with fields')),
      } satisfies t.TypesOf<ActionOptions>),
    ),
    first: t.optional(t.whole(1, MOST_WATCHED)),
    watch: t.optional(t.text),
    atMost: t.optional(t.whole(1, MOST.atMost)),
    rate: t.optional(t.whole(1, MOST.rate)),
    concurrency: t.optional(t.whole(1, MOST.concurrency)),
    cause: t.optional(t.text),
    ...ASKED_BY,
  } satisfies t.TypesOf<OperationRequest>)

/**
 * Operations on many documents, for programs (docs/bulk-operations.md#from-a-program), as `phaselock operations` offers them. It only
 * begins them; replicas
 * that have `operationLifecycle({ db })`, or `phaselock operations resume`, work on them.
 * @example
 * ```ts
 * const operations = new Operations({ db, lifecycles: [order] })
 * const selection = { lifecycle: 'order', filter: { printer: 'p7' }, parked: true }
 * const { _id } = await operations.begin({ action: 'unpark', selection, by: 'ana', reason: 'p7 is back' })
 * await operations.get(_id) // { condition: 'Running', expected: 1204, counts: { seen: 400, done: 398, skipped: 2, ... }, ... }
 * ```
 * @throws InvalidOptions
 */
export class Operations {
  private readonly system: System
  private readonly audit: boolean
  private readonly request: ReturnType<typeof requestOf>

  constructor(options: OperationsOptions) {
    const { db, lifecycles, doorbell, audit } = checkOptions('new Operations', parts, options)
    const models = lifecycles.map(({ model }) => model)
    this.system = { db, models, doorbell }
    this.audit = audit
    this.request = requestOf(models.map(({ name }) => name))
  }

  /**
   * Counts the documents that an operation would act on, and shows a few of them. Nothing is changed.
   * @example await operations.preview({ action: 'wake', selection: { lifecycle: 'order', phase: 'Packing' }, by: 'ana' }) // { count: 1204, examples: [...], ... }
   * @throws InvalidOptions; UsageError for a phase, a state or a filter that can't be used, or if more match than `atMost`
   */
  async preview(request: OperationRequest): Promise<OperationPreview> {
    return previewOperation(this.system, checkOptions('operations.preview', this.request, request, FORMER_REASON))
  }

  /**
   * Begins an operation: it is stored for the processes that work on operations.
   * @example await operations.begin({ action: 'set-state', options: { state: 'Deleted' }, selection: { lifecycle: 'order', filter: { customer: 4711 } }, by: 'ana' })
   * @throws as `preview`; NotFound if nothing matches; Refused if its `id` is taken
   */
  async begin(request: OperationRequest): Promise<OperationDocument> {
    const asked = checkOptions('operations.begin', this.request, request, FORMER_REASON)
    return beginOperation(this.by(asked), asked)
  }

  /**
   * An operation and its progress; null if there is no such operation, or it ended more than a month ago.
   * @throws InvalidOptions
   */
  async get(id: string): Promise<OperationState | null> {
    checkOptions('operations.get', anOperation, { id })
    return (await listOperations(this.system, { id })).operations[0] ?? null
  }

  /**
   * Operations, the newest first.
   * @example await operations.list({ open: true }) // [{ _id: 'wake-4f2a9c1b', condition: 'Running', counts: { seen: 400, ... }, perSecond: 912, leftMs: 880, ... }]
   * @throws InvalidOptions
   */
  async list(options: OperationsQuery = {}): Promise<readonly OperationState[]> {
    return (await listOperations(this.system, checkOptions('operations.list', query, options))).operations
  }

  /**
   * Ends an operation after the current page: documents that were acted on stay so.
   * @example await operations.abort('wake-4f2a9c1b', { by: 'ana' })
   * @returns its state before
   * @throws InvalidOptions, NotFound; Refused if it has ended
   */
  async abort(id: string, requester: AskedBy): Promise<OperationState> {
    checkOptions('operations.abort', anOperation, { id })
    return abortOperation(this.by(checkOptions('operations.abort', aRequester, requester, FORMER_REASON)), id)
  }

  /**
   * Counts the documents to look at to undo an operation. Nothing is changed.
   * @throws InvalidOptions, NotFound; Refused if it can't be undone, or has not ended
   */
  async previewUndo(id: string): Promise<{ readonly of: OperationState; readonly count: number }> {
    checkOptions('operations.previewUndo', anOperation, { id })
    return previewUndo(this.system, id)
  }

  /**
   * Begins to undo an operation: each document is restored to its state before, unless something has happened to it since.
   * @example await operations.undo('unpark-4f2a9c1b', { by: 'ana', reason: 'the wrong printer' }) // { _id: 'undo-unpark-4f2a9c1b', expected: 1201, ... }
   * @throws InvalidOptions, NotFound; Refused if it can't be undone, has not ended, or is being undone already
   */
  async undo(id: string, requester: AskedBy): Promise<OperationDocument> {
    checkOptions('operations.undo', anOperation, { id })
    const asked = checkOptions('operations.undo', aRequester, requester, FORMER_REASON)
    return undoOperation(this.by(asked), id, asked)
  }

  private by({ by, reason }: AskedBy): System {
    return this.audit ? { ...this.system, audit: { by, reason } } : this.system
  }
}
