import type { Found } from '../inspect/find.js'
import type { OperationAction } from './operation.js'
import type { BlastRadius } from './radius.js'

/** The documents that an operation would act on. */
export interface OperationPreview {
  /** The action on each of them. */
  readonly action: OperationAction
  /** The lifecycle of the documents. */
  readonly lifecycle: string
  /** The number of documents that match. */
  readonly count: number
  /** A few of them. */
  readonly examples: readonly Found[]
  /** What it would do to them. */
  readonly radius: BlastRadius
}
