import type {
  ChildList,
  DocumentName,
  HistoryEntry,
  PendingInsert,
  RecordedError,
  StoredAnswer,
  StoredAwaits,
  StoredParent,
  StoredQuestion,
} from '../../lock/index.js'
import type { Duration } from '../../time/index.js'
import type { Ask, DocumentPhases, Outcome, OwnFields, Reached, WaitForOptions, WithSet } from '../outcome/outcome.js'
import type { Logger } from '../reporting/logger.js'
import type {
  Child,
  ChildrenDone,
  ChildrenDoneOptions,
  ChildrenOptions,
  ChildrenRemoved,
  RemoveChildrenOptions,
} from './children.js'

/** The record of a document's way through its lifecycle; for handlers to read. */
export interface Progress {
  /** The step that is next, as `again({ step })` named it; absent: the phase's first one. */
  readonly step?: string
  /** The time when the phase was entered. Deadlines count from it. */
  readonly since?: Date
  /** The time of the last recorded step. */
  readonly at?: Date
  /** Errors in a row. */
  readonly attempts?: number
  /** Claims since the last recorded outcome. */
  readonly claims?: number
  /** The token of the last write that let go of the document. */
  readonly endedBy?: string
  /** The time when its sleep ends; absent: it doesn't sleep. */
  readonly resumeAt?: Date
  /** Steps in a row without a new phase, a wait or an error, where they are many or go in circles. */
  readonly steps?: number
  /** The reason from the last `step.wait` or `Unavailable`; absent: it doesn't wait. */
  readonly waitingFor?: string
  /** The kind of thing that it waits for, from `on`. */
  readonly waitingOn?: string
  /** The time when it began to wait for that. */
  readonly waitingSince?: Date
  /** The last question of its step, until the step after that; absent: nothing. */
  readonly question?: StoredQuestion
  /** The answer to it; absent: no one has answered. */
  readonly answer?: StoredAnswer
  /** The latest news from outside that it was woken for. */
  readonly heard?: { readonly source: string; readonly version: number; readonly at: Date }
  /** The parent that it is a child of; absent: it has no parent. */
  readonly parent?: StoredParent
  /** The lists of children that its steps have inserted; absent: none. */
  readonly children?: readonly ChildList[]
  /** The lowest fence of its own children; those with a lower one are a former document's with its `_id`. Absent: it has inserted none. */
  readonly childrenFrom?: number
  /** The newest 100 documents that have waited for a phase of this one; absent: none. */
  readonly waiters?: readonly DocumentName[]
  /** The event that ends its sleep before its time; absent: nothing. */
  readonly awaits?: StoredAwaits
  /**
   * The latest five operations on many documents (docs/bulk-operations.md) that have acted on it, oldest first. Before them stand the last undo, and
   * what it has undone.
   */
  readonly operations?: readonly string[]
  /** The operation on many documents that has set its state last; absent: none, or it was undone. */
  readonly stateBy?: string
  /** The data that inserts have kept for it while it was held (docs/inserting.md); absent: nothing. */
  readonly next?: PendingInsert
  /** The last error, with its causes; absent after a step that succeeded. */
  readonly error?: RecordedError
  /** The events in its life, oldest first: the newest 20 entries. */
  readonly history?: readonly HistoryEntry[]
}

/** A child as it is stored, with what Phaselock keeps of it. */
export type ChildDocument<Read> = Read & {
  /** The phase that it is in. */
  readonly phase: string
  /** The time when it was locked, or comes due; 9999-12-31: parked. */
  readonly lockedAt?: Date | null
  /** Its way through its lifecycle, with `parent`; `fields` of its lifecycle may rename it. */
  readonly progress: Progress
}

/** The answer to the question that a step asked, or the end of its time. */
export interface StepAnswer {
  /** The question as it was asked. */
  readonly question: string
  /** One of its options, or the text that a person gave. Without an answer in time its `onTimeout`, undefined where it has none. */
  readonly option: string | undefined
  /** The person who answered; `timeout`: no one did in time. */
  readonly by: string
  /** The time of the answer, by the server's clock; or when its time was over. */
  readonly at: Date
  /** The person's reason. */
  readonly reason: string | undefined
  /** True if its time was over before anyone answered. */
  readonly timedOut: boolean
}

/**
 * One run of one handler on one claimed document. Handlers must be idempotent: a crash repeats the step that it
 * interrupted, never an earlier one.
 */
export interface Step<Next extends string, Doc> {
  /** The name that `again({ step })` gave to this step; undefined for the first one of a phase. */
  readonly name: string | undefined
  /** A number that grows with each claim and step: pass it to outside systems that refuse lower ones. */
  readonly fence: number
  /** Aborts when the lease is in danger or lost, at the step timeout, at the phase's deadline and at the end of `grace` on shutdown. */
  readonly signal: AbortSignal
  /** 1 for the first try, then 1 + the errors in a row. */
  readonly attempt: number
  /** The time that the document has waited so far: since it was last touched, or recorded a step, or entered its phase. */
  readonly waitedMs: number
  /**
   * The answer to the question that this phase's last step asked; undefined: none was asked, or no one has answered yet. It stays for as long as the
   * step is tried again, and is gone after `again` and `moveTo`.
   */
  readonly answer: StepAnswer | undefined
  /** The document's progress when the step began. */
  readonly progress: Progress
  /** Writes to the replica's log, with the document and the step in each line. */
  readonly log: Logger
  /** The time in milliseconds that the lease lasts at least, by this replica's monotonic clock; 0: another replica may work on it. */
  leaseLeftMs(): number
  /** Go on in this phase, immediately: with the step of this name, or the phase's first one; `set` is stored along with it. */
  again(also?: { step?: string } & WithSet<Doc>): Outcome<never, Doc>
  /**
   * Look again later: after `for`, or by default after a tenth of the time waited so far, a tick (1 s) at least. Uses no attempt; `reason` is shown
   * to people. `on` names in a word the kind of thing it waits for. `phaselock status` and the metrics count by it: letters, digits, `_`, `-` and
   * `.`, at most 50.
   * @example return step.wait(`certificate ${name} isn't Ready`, { on: 'certificate' })
   */
  wait(reason: string, also?: { for?: Duration; on?: string } & WithSet<Doc>): Outcome<never, Doc>
  /** Let go of the document until a person answers (docs/questions.md): the next run of this step finds `answer`. Uses no attempt. */
  ask(question: Ask & WithSet<Doc>): Outcome<never, Doc>
  /** Go to another phase that this one's `next` names. */
  moveTo<P extends Next>(phase: P, also?: WithSet<Doc>): Outcome<P, Doc>
  /** Wait for a person (`phaselock unpark`), with the reason. */
  park(reason: string, also?: WithSet<Doc>): Outcome<never, Doc>
  /**
   * Stores `set` in the middle of a step.
   * @throws LeaseLost when another holder has the document: don't go on
   */
  checkpoint(set: OwnFields<Doc>): Promise<void>
  /**
   * Inserts documents of other lifecycles as this one's children (docs/children.md). Each list is inserted once, even after crashes, and no child a
   * second time if it is removed. Resolves when they and their number are stored.
   * @throws InvalidOutcome, InvalidDocument, UnknownChild, ChildExists; LeaseLost as `checkpoint` does
   */
  children(children: readonly Child[], options?: ChildrenOptions): Promise<void>
  /**
   * Counts the children that this document's steps have inserted, and applies a rule to them. While it isn't decided, end with
   * `step.wait(ended.text)`: the last child that the rule needs ends the sleep.
   * @throws InvalidOutcome for a document without lists of children, UnknownChild
   */
  childrenDone(options: ChildrenDoneOptions): Promise<ChildrenDone>
  /**
   * The children that are of one lifecycle, as they are now: at most 1,000, for what they have made.
   * @example const parcels = await step.childrenOf(parcel)
   */
  childrenOf<Read>(lifecycle: { readonly name: string; readonly $doc: Read }): Promise<ChildDocument<Read>[]>
  /**
   * Takes this document's children down before it (docs/children.md): sets the state that its lifecycle has a rule for on each, or deletes it. Until
   * all are gone, end with `step.wait(gone.text)`.
   * @throws InvalidOutcome, UnknownChild
   */
  removeChildren(options?: RemoveChildrenOptions): Promise<ChildrenRemoved>
  /**
   * Checks if another document is in one of these phases (`order.at(id, 'Shipped')`). Where it isn't, end with `step.wait(there.text)`: its move ends
   * the sleep.
   * @throws InvalidOutcome for an unknown lifecycle or phase, and for documents that wait for each other in a circle
   */
  waitFor(target: DocumentPhases, options?: WaitForOptions): Promise<Reached>
}

/**
 * The handler of a phase: does one step and says what comes next. Whatever it throws is recorded, and the step is tried again.
 * @typeParam Read the part of the document that it gets, where its lifecycle has `reads`: `typeof report.$doc`
 */
export type Handler<Next extends string, Doc, Read = Doc> = (
  doc: Readonly<Read>,
  step: Step<Next, Doc>,
) => Promise<Outcome<Next, Doc>>
