import type { Answered, InsertKind, OnDuplicate, StoredQuestion } from '../../lock/index.js'
import type { DoorbellMode } from '../../options/index.js'
import type { Duration } from '../../time/index.js'
import type { AuditOptions } from '../events/audit-log.js'
import type { Progress } from '../step/step.js'

/** A driver's ClientSession by its shape: an app may bring another copy of the driver, whose class is another type. */
export interface OwnerSession {
  /** Whether `endSession` was called. */
  readonly hasEnded: boolean
  /** Whether a transaction is open. */
  inTransaction(): boolean
  /** Commits it; rings for what was written in it wait for this. */
  commitTransaction(): Promise<void>
  /** Undoes it; nothing is rung for. */
  abortTransaction(): Promise<void>
  /** Gives the session back. */
  endSession(): Promise<void>
}

/** With a session a method takes part in the caller's own transaction; the session is of the client that the owner uses. */
export interface OwnerOptions {
  /** The caller's session. Default: none, the write stands alone. */
  readonly session?: OwnerSession | undefined
  /** Who does it and why, for the audit (docs/audit.md): an entry says so, one for all documents of an `insertMany`. Default: none. */
  readonly audit?: AuditOptions | undefined
}

/** How an owner of documents tells replicas what it wrote. */
export interface OwnerClientOptions {
  /** `off`: replicas are not notified of what was written and find it with their next tick. Default: they are. */
  readonly doorbell?: DoorbellMode | undefined
}

export interface InsertOptions extends OwnerOptions {
  /** `phase`: others of their phase were stored along with these and are due too, and nobody has rung for them. Default `these`. */
  readonly ringFor?: 'these' | 'phase' | undefined
}

/** What an insert does where a document with its `_id` exists; docs/inserting.md has a table. */
export interface DuplicateOptions extends OwnerOptions {
  /**
   * `ignore`: nothing. `wake`: ends its sleep. `replaceWaiting`: its fields get the new values, and it is due. `runAgain`: the same, and where it
   * has come to rest or is parked it starts again.
   */
  readonly onDuplicate: OnDuplicate
  /**
   * How soon it is due instead of at once, 1 ms to 365 d, by the database's clock: what comes in meanwhile goes into the same run. A document that
   * is due sooner stays so. Not together with a `lockedAt`. Default: at once.
   */
  readonly dueIn?: Duration | undefined
}

/** What an insert with `onDuplicate` came to. */
export interface InsertResult<Id = unknown> {
  /** The document's `_id`. */
  readonly id: Id
  /**
   * `inserted`: there was none. Of the one that exists: `woken`, `replaced` (the new values are in it), `restarted` (these too, in the phase of
   * an insert), `queued` (all that goes with the end of the step that runs); or as it was, because it was to be (`ignored`), it is `parked`, or
   * it is at rest (`resting`).
   */
  readonly kind: InsertKind
}

export interface StateOptions extends OwnerOptions {
  /** Also a state that no rule names, for handlers that read it. Default false. */
  readonly force?: boolean | undefined
}

export interface UnparkOptions extends OwnerOptions {
  /** Who did it, for the history. Default 'owner'. */
  readonly by?: string | undefined
  /**
   * Also frees it from a lease that began later than now, as after the server's clock stepped back: you vouch that its holder is gone. If
   * it isn't, it finds its document taken. Default false.
   */
  readonly force?: boolean | undefined
}

/** What an owner pauses or resumes: a phase, a document, or without either the whole lifecycle. */
export interface PauseScope<Doc = unknown, Phase extends string = string> {
  /** Only the documents in this phase. */
  readonly phase?: Phase | undefined
  /** Only the document with this `_id`. */
  readonly id?: IdOf<Doc> | undefined
}

/** What is paused, until when, by whom and why. */
export interface PauseOptions<Doc = unknown, Phase extends string = string> extends PauseScope<Doc, Phase> {
  /** Who pauses it, for others to read. */
  readonly by: string
  /** Why, for others to read: at most 500 characters. Default: none is given. */
  readonly reason?: string | undefined
  /** When it ends by itself, by the server's clock. Default: when it is resumed. */
  readonly until?: Date | undefined
  /** The same as a duration from now on, instead of `until`. */
  readonly for?: Duration | undefined
  /** Whether an entry in the audit (docs/audit.md) is to say so. Default false. */
  readonly audit?: boolean | undefined
}

/** Which pause is ended, and for the audit by whom. */
export interface ResumeOptions<Doc = unknown, Phase extends string = string> extends PauseScope<Doc, Phase> {
  /** Whose pause ends. Default: that of `audit.by`; where there is one only, that one. */
  readonly of?: string | undefined
  /** Who does it and why, for the audit (docs/audit.md). Default: no entry is stored. */
  readonly audit?: AuditOptions | undefined
}

/** Who wants a step to stop, and why. */
export interface CancelOptions {
  /** Who wants it to stop, for the history. */
  readonly by: string
  /** Why, for the history: at most 500 characters. Default: none is given. */
  readonly reason?: string | undefined
  /** Whether a document of which no step runs is parked at once: else it is left alone. Default false. */
  readonly evenIdle?: boolean | undefined
  /** Whether an entry in the audit (docs/audit.md) is to say so. Default false. */
  readonly audit?: boolean | undefined
}

export interface AnswerOptions extends OwnerOptions {
  /** One of the question's options; where it has none, any text of at most 1,000 characters. */
  readonly option: string
  /** Who answers. */
  readonly by: string
  /** What they have to say about it: at most 1,000 characters. Default: nothing. */
  readonly comment?: string | undefined
  /** The id of the question that is meant, as `questions` tells it. Default: the one that the document asks now. */
  readonly question?: string | undefined
}

/** What became of an answer: `answered`, or why nothing was stored. */
export type AnswerResult = Answered

/** An open question, and the document that asks it. */
export interface DocumentQuestion<Doc = unknown, Phase extends string = string> extends StoredQuestion {
  /** The document's. */
  readonly _id: IdOf<Doc>
  /** The phase that it is in. */
  readonly phase: Phase
}

/** How much of the inbox is read. */
export interface QuestionsOptions {
  /** At most this many, 1 to 10,000: the oldest. Default 1,000. */
  readonly limit?: number | undefined
  /** Only those that are meant for this one, or for nobody in particular. Default: all. */
  readonly to?: string | undefined
}

/**
 * What became of a cancel: `asked`, its holder has been asked; `stopped`, nobody held it, and it was parked; or why nothing was done: no step of it runs, nobody knows the document, no replica
 * has run the lifecycle yet, or 200 were asked for within ten minutes.
 */
export type CancelResult = 'asked' | 'stopped' | 'notHeld' | 'notFound' | 'notRegistered' | 'tooMany'

/**
 * What became of a pause: `done`, or why nothing is paused: no replica has run the lifecycle yet, or 200 pauses of it are in force.
 */
export type PauseResult = 'done' | 'notRegistered' | 'tooMany'

/** What became of an owner's request: `done`, or why nothing was changed. */
export type OwnerVerdict = 'done' | 'notFound' | 'held' | 'parked' | 'notParked' | 'unchanged'

/** The type of a document's `_id`; `unknown` when it declares none. */
export type IdOf<Doc> = Doc extends { readonly _id?: infer Id } ? Exclude<Id, undefined> : unknown

/** The states that a document's owner may want; none when it declares no `state`. */
export type StateOf<Doc> = string extends keyof Doc
  ? string
  : Doc extends { readonly state?: infer State }
    ? Extract<State, string>
    : never

type Marked<G> = { [P in keyof G]: G[P] extends { readonly entry: true } ? P : never }[keyof G] & string
type NotFinal<G> = { [P in keyof G]: G[P] extends { readonly final: true } ? never : P }[keyof G] & string

/**
 * The phases in which a document may be inserted: those marked `entry`. Where none is, the first one declared is meant, which
 * a type can't know: then every phase that isn't final.
 */
export type EntryOf<G> = string extends keyof G ? string : [Marked<G>] extends [never] ? NotFinal<G> : Marked<G>

/** The driver makes an ObjectId where a document has no `_id`. */
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
    /** When it is due. Default: at once. */
    readonly lockedAt?: Date
    /** Default: when it is first claimed. */
    readonly createdAt?: Date
    /** Default: when it is first claimed. */
    readonly updatedAt?: Date
  }

/**
 * A document to insert as another's child: as `insert` takes it, and its `_id` may be left out where it may be a text. It gets one of its parent's
 * lifecycle and `_id`, and of its key.
 */
export type NewChild<Doc, Entry extends string> = Omit<NewDocument<Without<Doc, '_id'>, Entry>, '_id'> &
  (string extends IdOf<Doc> ? { readonly _id?: IdOf<Doc> } : { readonly _id: IdOf<Doc> })

/** A document as it is stored. Phaselock fills in its fields when it first claims it; `progress` may be renamed by `fields`. */
export type StoredDocument<Doc, Phase extends string = string> = Without<Doc, Kept | '_id'> & {
  /** As it was inserted. */
  _id: IdOf<Doc>
  /** The phase that it is in. */
  phase: Phase
  /** When it was locked, or comes due; 1970-01-01, null or absent: due at once; 9999-12-31: parked. */
  lockedAt?: Date | null
  /** The token of who holds it; null or absent: nobody. */
  lockedBy?: string | null
  /** Grows with each claim and step. */
  fence?: number
  /** Its way through the lifecycle: attempts, what it waits for, its history. */
  progress?: Progress
  /** By the database's clock, where its owner gave none. */
  createdAt?: Date
  /** When a step was last recorded, by the database's clock; waits leave it alone. */
  updatedAt?: Date
}
