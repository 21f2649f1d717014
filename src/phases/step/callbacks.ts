import type { CallbackName, RecordedOutcome } from '../../lock/index.js'
import type { Logger } from '../reporting/logger.js'

/** The event that a callback is called for. */
export interface CallbackEvent<Doc = Record<string, unknown>, Phase extends string = string> {
  /** The document's lifecycle. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: Doc extends { readonly _id: infer Id } ? Id : unknown
  /** A number that grows by 1 with each event of a document: with `id` it names this one, so that a second call for it can be recognized. */
  readonly seq: number
  /** The time of the event, by the server's clock. */
  readonly at: Date
  /** The phase that it was in. */
  readonly from: Phase
  /** The phase that it went to; the same if it was parked or removed. */
  readonly to: Phase
  /** The name of the step that did it; null: the step has no name, or it was not a step. */
  readonly step: string | null
  /** The kind of event: `moveTo`, `deadline`, `rule`, `park` or `remove`. */
  readonly outcome: RecordedOutcome
  /** The reason why it was parked, moved or removed; at most 500 characters; null: nothing is known. */
  readonly reason: string | null
  /** The token of the step that did it, or `rule`, or for a removal the person who asked for it. */
  readonly by: string
  /** The document as it is when the callback is called: it may have gone on since. One that is removed is as it was then. */
  readonly document: Readonly<Doc>
}

/** One call of a callback. */
export interface CallbackCall {
  /** Aborts after `callbackTimeout`, and at the end of `grace` on shutdown. */
  readonly signal: AbortSignal
  /** The number of this call: 1 for the first call for this event, then one more each time, also for calls that a crash has cut short. */
  readonly attempt: number
  /** Writes to the replica's log, with the document and the event in each line. */
  readonly log: Logger
}

/**
 * A function that is called after the outcome is stored, at least once for each event, and in order for each document. The engine awaits its result.
 * If it throws, or doesn't end within `callbackTimeout`, it is called again after a pause.
 */
export type Callback<Doc = Record<string, unknown>, Phase extends string = string> = (
  event: CallbackEvent<Doc, Phase>,
  call: CallbackCall,
) => unknown

/** A callback as the engine calls it. */
export type AnyCallback = Callback

/** The callbacks of a lifecycle, each by its name. */
export type Callbacks<Doc = Record<string, unknown>, Phase extends string = string> = {
  readonly [Name in CallbackName]?: Callback<Doc, Phase>
}
