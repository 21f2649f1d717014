import type { CallbackName } from '../../lock/index.js'
import type { Duration } from '../../time/index.js'
import type { ReservedField } from '../outcome/outcome.js'

/** The longest time that a document may stay in a phase, counted from when it entered it, and its next phase after that. */
export interface Deadline<Names extends string, State> {
  /** The time after the phase was entered. */
  readonly after: Duration
  /** The phase that it goes to then. */
  readonly moveTo: Names
  /** Compensation: the owner's state from then on, unless the owner has changed it in the meantime. */
  readonly setState?: State
}

type Without<Keys extends string> = { readonly [Key in Keys]?: never }
interface Passing<Names extends string, State> extends Without<'final' | 'keepFor'> {
  readonly entry?: boolean
  readonly deadline?: Deadline<Names, State>
}

/** A working phase names where it may go; a resting phase waits for its owner; a final phase is removed. */
export type PhaseSpec<Names extends string, State> =
  | (Passing<Names, State> & Without<'rest' | 'failed'> & Limited & { readonly next: readonly Names[] })
  | (Passing<Names, State> & Without<'next' | 'limits' | 'slots'> & Ending & { readonly rest: true })
  | (Without<'entry' | 'deadline' | 'next' | 'rest' | 'limits' | 'slots'> &
      Ending & {
        readonly final: true
        readonly keepFor?: Duration
      })

/** A phase in which a document's work has ended. */
interface Ending {
  /** True if it ended badly, for the document's parent (docs/children.md). Default false. */
  readonly failed?: true
}

/** The limits that a phase's documents need while they are worked on. */
interface Limited {
  readonly limits?: readonly LimitSpec[]
  readonly slots?: number
}

/**
 * A limit across all replicas (docs/limits.md) by its name in `phaselock.limits`; with the slots that it has unless a person sets another number
 * there.
 */
export type LimitSpec = string | { readonly name: string; readonly slots: number }

export type Graph<G, State> = { readonly [P in keyof G]: PhaseSpec<keyof G & string, State> }
export type NextOf<S> = S extends { readonly next: readonly (infer N extends string)[] } ? N : never
export type Working<G> = {
  [P in keyof G]: G[P] extends { readonly next: readonly unknown[] } ? P : never
}[keyof G] &
  string

/** "A document in one of these phases whose owner wants this state goes to that phase", with no handler. */
export interface RuleSpec<Names extends string, State extends string> {
  /** The owner's `state`. */
  readonly when: State
  /** `'any'`: every phase that isn't final, but for `moveTo` itself. */
  readonly from: readonly Names[] | 'any'
  /** The phase that it goes to as soon as no replica holds it. */
  readonly moveTo: Names
  /** The owner's state from then on. Default: it stays. */
  readonly setState?: State
}

/** The settings of a lifecycle, each with its unit in its value (`'30s'`). */
export interface LifecycleSettingsSpec<Named extends readonly string[] | undefined = undefined> {
  /** The time that a lease lasts without a renewal: the cost of a crash. Default 30s, at least 1s. */
  readonly lockTimeout?: Duration
  /** The time that one step may run. Default 5m. */
  readonly stepTimeout?: Duration
  /** The number of errors in a row until the document is parked. Default 20. */
  readonly maxAttempts?: number
  /** The time that documents sleep between looks and after errors. */
  readonly backOff?: {
    /** A waiting document sleeps for this share of the time waited so far, 0.01 to 1. Default 0.1. */
    readonly share?: number
    /** The waiting time after which it sleeps for a whole lockTimeout each time. Default 2m. */
    readonly patience?: Duration
    /** The pause after the first error in a row; doubled with each further one, +-20 %. Default 1s. */
    readonly firstError?: Duration
    /** The longest pause after an error. Default 5m. */
    readonly longestError?: Duration
    /**
     * The number of steps in a row without a new phase, a wait or an error after which a warning is logged. From then on there is a pause after each
     * step: 100 ms, and up to 1 s. Set more for documents that take more steps, such as pages of a long list. Default 1000.
     */
    readonly afterSteps?: number
  }
  /** The number of handlers that one replica runs at the same time. Default 32. */
  readonly concurrency?: number
  /** The limits that each document needs while a replica holds it, in every working phase (docs/limits.md). Default: none. */
  readonly limits?: readonly LimitSpec[]
  /** The number of its documents that all replicas together work on at the same time, at most. Default: any number. */
  readonly maxActive?: number
  /**
   * The functions that are called after the outcome is stored (docs/callbacks.md): each has an implementation in `handle`, or a method with
   * `Callback`. Documents keep undelivered events in `progress.outbox`; this needs an index of its own. Default: none.
   */
  readonly callbacks?: readonly CallbackName[]
  /** The time that a callback may take until its signal aborts and it counts as failed, 100ms to 1h. Default 30s. */
  readonly callbackTimeout?: Duration
  /**
   * The events that are kept of its documents beyond the newest 20 entries of their histories (docs/events.md). `full`: each end of a step;
   * `sampled`: all of one document in a hundred, and errors, parks and deadlines of every one. `for`: the time, 1h to 3650d, default 7d; `most`: the
   * number of events, default 1,000,000. Default `off`.
   * @example 'full'
   * @example { keep: 'sampled', for: '30d' }
   */
  readonly events?:
    | 'off'
    | 'sampled'
    | 'full'
    | { readonly keep: 'off' | 'sampled' | 'full'; readonly for?: Duration; readonly most?: number }
  /**
   * Names the cause of an error that a handler threw, where its name, code, message and first frame don't tell (docs/flow.md): 1 to 200 characters;
   * undefined: the usual cause. Called for each error that is recorded, so it must be quick. If it throws or returns anything else, the usual cause is
   * taken, and the log says so once. It doesn't affect how errors are handled.
   * @example (error) => (error instanceof QuotaExceeded ? `quota of ${error.resource}` : undefined)
   */
  readonly causeOf?: (error: unknown) => string | undefined
  /** The number of claims without a recorded outcome until the document is parked as poison. Default 10. */
  readonly maxClaims?: number
  /**
   * True if its documents may be the children of others (docs/children.md): then their collection has an index on `progress.parent`, and the end of
   * each of them is reported to its parent. Default false.
   */
  readonly child?: boolean
  /**
   * True if legacy writers lease documents of this lifecycle too: by `lockedAt` alone, without `lockedBy`. Their leases are then distinguished from
   * sleeps, and nothing of theirs is overwritten. Default false. See docs/upgrading.md.
   */
  readonly legacyWriters?: boolean
  /**
   * The owner's top-level fields that handlers read, besides `_id`, `state` and Phaselock's own. Nothing else of a document is fetched, handlers find
   * nothing else in it, and its type there has nothing else. For big documents whose handlers need little of them. Default: the whole document.
   */
  readonly reads?: Named
  /** The new name of the field that holds all of Phaselock's data beyond its seven names. Default `progress`. */
  readonly fields?: { readonly progress?: string }
}

/** The top-level fields of a document; of a union, the fields of each. */
export type FieldOf<Doc> = Doc extends unknown ? keyof Doc & string : never

/** The fields that `reads` may name. */
export type Reads<Doc> = readonly FieldOf<Doc>[]

/**
 * The document as handlers get it: all of it, or the fields that `reads` names. Where `Doc` declares them, it also has those that are always fetched
 * (`RESERVED_FIELDS`).
 */
export type ReadDocument<Doc, Named extends readonly string[] | undefined> = Named extends readonly (infer Field)[]
  ? PickOf<Doc, Field | ReservedField>
  : Doc

type PickOf<Doc, Field> = Doc extends unknown ? Pick<Doc, keyof Doc & Field> : never
