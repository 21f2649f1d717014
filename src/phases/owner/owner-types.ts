import type { Document, Filter } from 'mongodb'
import type { Answered, InsertKind, OnDuplicate, StoredQuestion } from '../../lock/index.js'
import type { DoorbellMode } from '../../options/index.js'
import type { Duration } from '../../time/index.js'
import type { AuditOptions } from '../events/audit.js'
import type { Progress } from '../step/step.js'

/** A driver's ClientSession by its shape: an app may bring another copy of the driver, whose class is another type. */
export interface OwnerSession {
  /** True once `endSession` was called. */
  readonly hasEnded: boolean
  /** True if a transaction is open. */
  inTransaction(): boolean
  /** Commits the transaction; rings for its writes wait for this. */
  commitTransaction(): Promise<void>
  /** Undoes the transaction; nothing is rung for. */
  abortTransaction(): Promise<void>
  /** Gives the session back. */
  endSession(): Promise<void>
}

/** The options of every call. With a session a method takes part in the caller's own transaction; the session must be of the owner's client. */
export interface OwnerOptions {
  /** The caller's session. Default: none, the write stands alone. */
  readonly session?: OwnerSession | undefined
  /** The person and the reason, for the audit (docs/audit.md); an `insertMany` stores one entry for all its documents. Default: no entry. */
  readonly audit?: AuditOptions | undefined
}

/** The options of an owner's client: how it notifies replicas of its writes. */
export interface OwnerClientOptions {
  /** `off`: replicas are not notified of writes and find them with their next tick. Default: they are notified. */
  readonly doorbell?: DoorbellMode | undefined
  /**
   * A condition of each write to an existing document, and of each request to its holder.
   * @internal
   */
  readonly where?: Filter<Document> | undefined
}

/**
 * A call on one document, to be predicted.
 * @internal
 */
export type OwnerCall =
  | { readonly action: 'wake' }
  | { readonly action: 'unpark'; readonly by: string; readonly force?: boolean | undefined }
  | { readonly action: 'set-state'; readonly state: string }
  | { readonly action: 'answer'; readonly answer: AnswerOptions }

export interface InsertOptions extends OwnerOptions {
  /** `phase`: other documents of their phase were stored along with these, are due too, and have not been rung for. Default `these`. */
  readonly ringFor?: 'these' | 'phase' | undefined
}

/** The effect of an insert where a document with its `_id` exists; docs/inserting.md has a table. */
export interface DuplicateOptions extends OwnerOptions {
  /**
   * `ignore`: nothing. `wake`: ends its sleep. `replaceWaiting`: its fields get the new values, and it is due. `runAgain`: the same, and where it has
   * come to rest or is parked it starts again.
   */
  readonly onDuplicate: OnDuplicate
  /**
   * The delay after which it is due, 1 ms to 365 d, by the database's clock: inserts during the delay go into the same run. A document that is due
   * sooner stays so. Not together with a `lockedAt`. Default: due immediately.
   */
  readonly dueIn?: Duration | undefined
}

/** The result of an insert with `onDuplicate`. */
export interface InsertResult<Id = unknown> {
  /** The document's `_id`. */
  readonly id: Id
  /**
   * `inserted`: it didn't exist yet. An existing document was `woken`, `replaced` (it has the new values), `restarted` (the same, in the phase of an
   * insert), or `queued` (all that goes with the end of the running step). Or it stayed as it was, because it was to be (`ignored`), it is `parked`,
   * or it is at rest (`resting`).
   */
  readonly kind: InsertKind
}

export interface StateOptions extends OwnerOptions {
  /** Also a state that no rule names, for handlers that read it. Default false. */
  readonly force?: boolean | undefined
}

export interface UnparkOptions extends OwnerOptions {
  /** The person who did it, for the history. Default 'owner'. */
  readonly by?: string | undefined
  /**
   * Also frees it from a lease that began later than now, as after the server's clock stepped back: you vouch that its holder is gone. If it isn't,
   * it finds its document taken. Default false.
   */
  readonly force?: boolean | undefined
}

/** The target that an owner pauses or resumes: a phase, a document, or without either the whole lifecycle. */
export interface PauseScope<Doc = unknown, Phase extends string = string> {
  /** Only the documents in this phase. */
  readonly phase?: Phase | undefined
  /** Only the document with this `_id`. */
  readonly id?: IdOf<Doc> | undefined
}

/** A pause: its target, its end, the person and the reason. */
export interface PauseOptions<Doc = unknown, Phase extends string = string> extends PauseScope<Doc, Phase> {
  /** The person who pauses it, for others to read. */
  readonly by: string
  /** The reason, for others to read: at most 500 characters. Default: none is given. */
  readonly reason?: string | undefined
  /** The time when it ends by itself, by the server's clock. Default: when it is resumed. */
  readonly until?: Date | undefined
  /** The same as a duration from now on, instead of `until`. */
  readonly for?: Duration | undefined
  /** True to store an entry in the audit (docs/audit.md). Default false. */
  readonly audit?: boolean | undefined
}

/** The pause to end, and for the audit the person who ends it. */
export interface ResumeOptions<Doc = unknown, Phase extends string = string> extends PauseScope<Doc, Phase> {
  /** The person whose pause ends. Default: that of `audit.by`; where there is only one, that one. */
  readonly of?: string | undefined
  /** The person and the reason, for the audit (docs/audit.md). Default: no entry is stored. */
  readonly audit?: AuditOptions | undefined
}

/** The person who wants a step to stop, and the reason. */
export interface CancelOptions {
  /** The person who wants it to stop, for the history. */
  readonly by: string
  /** The reason, for the history: at most 500 characters. Default: none is given. */
  readonly reason?: string | undefined
  /**
   * Whether a document of which no step runs is parked at once, unless it has ended: else it is left alone. With it the cancel also goes on to the
   * document's children (docs/children.md) that haven't ended. Default false.
   */
  readonly evenIdle?: boolean | undefined
  /** True to store an entry in the audit (docs/audit.md). Default false. */
  readonly audit?: boolean | undefined
}

export interface AnswerOptions extends OwnerOptions {
  /** One of the question's options; where it has none, any text of at most 1,000 characters. */
  readonly option: string
  /** The person who answers. */
  readonly by: string
  /** The person's reason: at most 1,000 characters. Default: none is given. */
  readonly reason?: string | undefined
  /** The id of the question that is meant, from `questions`. Default: the one that the document asks now. */
  readonly question?: string | undefined
}

/** The result of an answer: `answered`, or why nothing was stored. */
export type AnswerResult = Answered

/** An open question, and the document that asks it. */
export interface DocumentQuestion<Doc = unknown, Phase extends string = string> extends StoredQuestion {
  /** The document's `_id`. */
  readonly _id: IdOf<Doc>
  /** The phase that it is in. */
  readonly phase: Phase
}

/** The part of the inbox that is read. */
export interface QuestionsOptions {
  /** The number of questions at most, 1 to 10,000: the oldest. Default 1,000. */
  readonly limit?: number | undefined
  /** Only questions that are meant for this person, or for no one in particular. Default: all. */
  readonly to?: string | undefined
}

/**
 * The result of a cancel: `asked`, the holder has been asked; `stopped`, no replica held the document, and it was parked. Otherwise why nothing was
 * done: the document has no running step, there is no such document, no replica has run the lifecycle yet, or 200 cancels were asked for within ten
 * minutes.
 */
export type CancelResult = 'asked' | 'stopped' | 'notHeld' | 'notFound' | 'notRegistered' | 'tooMany'

/** The result of a pause: `done`, or why nothing is paused: no replica has run the lifecycle yet, or 200 pauses of it are in force. */
export type PauseResult = 'done' | 'notRegistered' | 'tooMany'

/** The result of an owner's request: `done`, or why nothing was changed. */
export type OwnerVerdict = 'done' | 'notFound' | 'held' | 'parked' | 'notParked' | 'unchanged'

/** The type of a document's `_id`; `unknown` when it declares none. */
export type IdOf<Doc> = Doc extends { readonly _id?: infer Id } ? Exclude<Id, undefined> : unknown

/** The states that a document's owner may want; never, when it declares no `state`. */
export type StateOf<Doc> = string extends keyof Doc
  ? string
  : Doc extends { readonly state?: infer State }
    ? Extract<State, string>
    : never

type Marked<G> = { [P in keyof G]: G[P] extends { readonly entry: true } ? P : never }[keyof G] & string
type NotFinal<G> = { [P in keyof G]: G[P] extends { readonly final: true } ? never : P }[keyof G] & string

/**
 * The phases that a document may be inserted in: those marked `entry`. If no phase is marked, the first one declared is meant, which a type can't
 * know: then every phase that isn't final.
 */
export type EntryOf<G> = string extends keyof G ? string : [Marked<G>] extends [never] ? NotFinal<G> : Marked<G>

/** True where the driver makes the `_id`: an ObjectId, for a document without one. */
type IsMadeByDriver<Id> = unknown extends Id
  ? true
  : [Extract<Id, { toHexString(): string }>] extends [never]
    ? false
    : true

type Kept = 'phase' | 'lockedAt' | 'lockedBy' | 'fence' | 'progress' | 'createdAt' | 'updatedAt'
type Without<Doc, Keys extends PropertyKey> = Doc extends unknown ? Omit<Doc, Keys> : never

/**
 * A document to insert: the owner's own fields as declared, without those that Phaselock writes. `_id` may be left out where
 * the driver's ObjectId will do; a `lockedAt` in the future lets it sleep until then (plus lockTimeout).
 */
export type NewDocument<Doc, Entry extends string> = Without<Doc, Kept | '_id'> &
  /** Required, unless the driver makes it (an ObjectId). */
  (IsMadeByDriver<IdOf<Doc>> extends true ? { readonly _id?: IdOf<Doc> } : { readonly _id: IdOf<Doc> }) & {
    /** Default: the first entry phase. */
    readonly phase?: Entry
    /** The time when it is due. Default: immediately. */
    readonly lockedAt?: Date
    /** Default: the time of its first claim. */
    readonly createdAt?: Date
    /** Default: the time of its first claim. */
    readonly updatedAt?: Date
  }

/**
 * A document to insert as another's child: as `insert` takes it, and its `_id` may be left out where it may be a text. It is then made of the
 * parent's lifecycle and `_id`, and of the child's key.
 */
export type NewChild<Doc, Entry extends string> = Omit<NewDocument<Without<Doc, '_id'>, Entry>, '_id'> &
  (string extends IdOf<Doc> ? { readonly _id?: IdOf<Doc> } : { readonly _id: IdOf<Doc> })

/** A document as it is stored. Phaselock fills in its fields when it first claims it; `progress` may be renamed by `fields`. */
export type StoredDocument<Doc, Phase extends string = string> = Without<Doc, Kept | '_id'> & {
  /** The `_id` as it was inserted. */
  _id: IdOf<Doc>
  /** The phase that it is in. */
  phase: Phase
  /** The time when it was locked, or comes due; 1970-01-01, null or absent: due immediately; 9999-12-31: parked. */
  lockedAt?: Date | null
  /** The token of its holder; null or absent: no replica holds it. */
  lockedBy?: string | null
  /** A number that grows with each claim and step. */
  fence?: number
  /** Its way through the lifecycle: attempts, what it waits for, its history. */
  progress?: Progress
  /** The time of its creation, by the database's clock where its owner gave none. */
  createdAt?: Date
  /** The time when a step was last recorded, by the database's clock; waits leave it alone. */
  updatedAt?: Date
}
