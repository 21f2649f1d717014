import type { Document } from 'mongodb'
import type { OperationAction } from './operation.js'
import type { Selection } from './selection.js'

/** The options of an action, besides the selection of documents. */
export interface ActionOptions {
  /** `set-state`: the state to set. */
  readonly state?: string | undefined
  /** `set-state`: store even a state that no rule names. */
  readonly force?: boolean | undefined
  /** `redo`: the phase where they begin again, by default their own. `migrate`: the new phase. */
  readonly phase?: string | undefined
  /** `redo`: the first step that runs. Default: the first of the phase. */
  readonly step?: string | undefined
  /** `redo`: the owner's fields to set. */
  readonly set?: Document | undefined
}

/** A request for an operation on many documents. */
export interface OperationRequest {
  /**
   * The operation's id. A second operation with the same id is refused, so that a request whose answer was lost can be repeated. Each id is
   * used once. Default: its action and a random number.
   */
  readonly id?: string | undefined
  /** The action on each of them. */
  readonly action: OperationAction
  /** The documents to act on. */
  readonly selection: Selection
  /** The options of the action, such as the `state` of `set-state`. */
  readonly options?: ActionOptions | undefined
  /** The maximum number of documents that may match: more are refused. Default 10,000. */
  readonly atMost?: number | undefined
  /** The maximum number of documents per second. Default 1,000. */
  readonly rate?: number | undefined
  /** The maximum number of documents at the same time. Default 8. */
  readonly concurrency?: number | undefined
  /** The person or program that asks for it. */
  readonly by: string
  /** The reason. Default: none is given. */
  readonly reason?: string | undefined
  /**
   * A trial: it acts on so many first, 1 to 200, waits for what they record next, and goes on with ten times as many only while none of them fails for
   * the same cause. Otherwise it is parked, with the reason. Default: no trial.
   */
  readonly first?: number | undefined
  /** The maximum time to wait for the outcomes of a trial's batch, 1s to 24h. Default `2m`. */
  readonly watch?: string | undefined
  /**
   * The id of the cause that it is for: 12 hex digits. The list of causes shows it as what was done before. Default: that of the
   * selection, if it has one.
   */
  readonly cause?: string | undefined
}
