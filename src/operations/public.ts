/**
 * Operations on many documents (docs/bulk-operations.md), worked on by an app's own replicas.
 *
 * @example
 * ```ts
 * import { lifecycleOf, Replica } from 'phaselock'
 * import { connectDatabase } from 'phaselock/database'
 * import { operationLifecycle } from 'phaselock/operations'
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
 * ```
 * @packageDocumentation
 */
import type { Db } from 'mongodb'
import { checkOptions, type DoorbellMode, processOptions, t } from '../options/index.js'
import type { RunnableLifecycle } from '../phases/index.js'
import { type OperationDocument, operationDefinition } from './bulk/operation.js'
import { workOnPage } from './bulk/work.js'

/** What a replica needs to work on operations. */
export interface OperationLifecycleOptions {
  /** The database of the operations, and of the documents that they are about. */
  readonly db: Db
  /** `off`: replicas aren't told of documents that an operation has made due, and find them with their next tick. Default `auto`. */
  readonly doorbell?: DoorbellMode | undefined
}

const toWork = t.partOf({
  db: t.aDatabase,
  doorbell: processOptions.doorbell,
} satisfies t.TypesOf<OperationLifecycleOptions>)

/**
 * The lifecycle of operations on many documents with its handler, for a replica that works on them beside its own lifecycles: on those that are
 * begun, and on those whose command was ended or killed.
 * @example new Replica({ db, lifecycles: [orders, operationLifecycle({ db })] })
 * @throws InvalidOptions
 */
export function operationLifecycle(options: OperationLifecycleOptions): RunnableLifecycle {
  const { db, doorbell } = checkOptions('operationLifecycle', toWork, options)
  return operationDefinition.handle({
    Running: (doc, step) => workOnPage({ db, doorbell }, doc as OperationDocument, step),
  }) as never
}
