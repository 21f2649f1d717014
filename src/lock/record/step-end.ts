import type { Lease } from '../lease/lease.js'
import type { ChildList, StoredAwaits } from './children.js'
import type { AskedQuestion } from './question.js'

/** The recorded part of an error: bounded, so that a 10 MB message never costs a document. */
export interface RecordedError {
  /** The error's class: `TypeError`; `Error` where it has none. */
  readonly name: string
  /** At most 2,000 characters. */
  readonly message: string
  /** The code that libraries and systems set: `ECONNREFUSED`. */
  readonly code?: string | number | undefined
  /** Without the frames of Phaselock itself. */
  readonly stack?: string | undefined
  /** Its `cause`, the cause's own, and so on; for an AggregateError also its `errors`. */
  readonly causes?: readonly Pick<RecordedError, 'name' | 'message' | 'code'>[] | undefined
  /** A bug of the program: the number of the document's steps in a row that have ended with one. */
  readonly bugs?: number | undefined
}

/**
 * The protocol's way to end a step: one kind for each row of the table in docs/lock-protocol.md. Two ends of the same kind and content may be
 * written together; fields that differ from document to document are in {@link StepEnd}.
 */
export type EndKind = {
  /** The name of the step that ran; null when it has none. */
  readonly step: string | null
} & (
  | {
      readonly kind: 'again'
      readonly nextStep: string | null
      readonly keepsLease: boolean
      /** The one before was like it: one entry of the history stands for both. */
      readonly folds?: true | undefined
      /** Its lease doesn't go on, and it sleeps: too many steps in a row. */
      readonly forMs?: number | undefined
    }
  | {
      readonly kind: 'wait' | 'unavailable'
      readonly reason: string
      /** The kind of thing that it waits for. */
      readonly on?: string | undefined
      readonly forMs: number | null
      /** The event that ends the sleep before its time. */
      readonly awaits?: StoredAwaits | undefined
    }
  | {
      readonly kind: 'ask'
      readonly question: AskedQuestion
      /** Until its time is over; null: it has no end. */
      readonly forMs: number | null
      readonly times: number
      /** It asks the same as before, and there is no answer yet: that question goes on, with its deadline. */
      readonly keeps?: true | undefined
    }
  | {
      readonly kind: 'moveTo'
      readonly to: string
      /** The milliseconds that it sleeps there; undefined: it is due immediately. */
      readonly forMs?: number | undefined
      readonly by: 'handler' | 'deadline'
      readonly reason: string | null
      /** To a phase that it has come from: its steps in a row are stored. */
      readonly inCircles?: true | undefined
      /** A deadline's compensation: written only while the owner still wants `ifState`. */
      readonly setState?: { readonly ifState: unknown; readonly state: string } | undefined
    }
  | {
      readonly kind: 'park'
      readonly reason: string
      readonly error: RecordedError | null
      /** For the last of too many errors in a row. */
      readonly usesAttempt?: true | undefined
    }
  | { readonly kind: 'error'; readonly error: RecordedError }
  | { readonly kind: 'released' | 'sleepUntilDeadline' }
  | {
      readonly kind: 'checkpoint'
      /** All lists of children that it has with this write. */
      readonly children?: readonly ChildList[] | undefined
      /** The fence from which children are its own. */
      readonly childrenFrom?: number | undefined
      readonly reason?: string | undefined
    }
  /** Parked without a record of the reason: for a document that takes no other write any more (its size, a `progress` of its owner's). */
  | { readonly kind: 'quarantine'; readonly reason: string }
)

/** One document's end of a step. */
export interface StepEnd {
  readonly lease: Lease
  readonly end: EndKind
  /** The milliseconds that the handler ran. */
  readonly ms: number
  /** The owner's fields to store with it; `undefined` removes a field. */
  readonly set?: Readonly<Record<string, unknown>> | undefined
  /** The number of steps in a row including this one; stored where its lease ends and others follow. */
  readonly steps?: number | undefined
  /** Milliseconds to sleep after an error, where each document has its own pause. */
  readonly pauseMs?: number | undefined
  /** The latest end of a sleep in this phase (its deadline, server time); null: no deadline. */
  readonly wakeBy: Date | null
  /** Fields of `progress` that the document has and that this end removes. */
  readonly stale: readonly string[]
  /** Set when it is recorded: the document's queued inserts were applied with it. */
  readonly appliesPendingInsert?: true | undefined
}

/** The names of fields that a `set` removes. */
export const removedFields = (set: Readonly<Record<string, unknown>>): string[] =>
  Object.keys(set).filter((name) => set[name] === undefined)

/**
 * The outcome of a write under a token (`appliesPendingInsert`: one that applied its document's queued inserts, and let go of it):
 * - `recorded`;
 * - `lost`: the lease was taken, nothing was written;
 * - `movedOn`: unknown, but the document has gone on and there is nothing left to do;
 * - `rejected`: the server refuses it because of the document itself (its validator, its size, a type); the lease still stands;
 * - `givenUp`: it failed again and again, through no fault of the document, while the lease could be renewed. Unknown, because it may still
 *   arrive: the lease runs out, and the step is repeated.
 */
export type Verdict =
  | { readonly kind: 'recorded' | 'lost' | 'movedOn'; readonly appliesPendingInsert?: true | undefined }
  | { readonly kind: 'rejected'; readonly error: Error; readonly appliesPendingInsert?: true | undefined }
  | { readonly kind: 'givenUp'; readonly error: unknown }
