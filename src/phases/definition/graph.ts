import type { CallbackName } from '../../lock/index.js'
import type { Duration } from '../../time/index.js'
import type { ReservedField } from '../outcome/outcome.js'

/** How long a document may stay in a phase, counted from when it entered it, and where it goes then. */
export interface Deadline<Names extends string, State> {
  /** Counted from when the phase was entered. */
  readonly after: Duration
  /** The phase that it goes to then. */
  readonly goTo: Names
  /** Compensation: what the owner's state becomes, unless the owner has changed it meanwhile. */
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
  /** Whether it ended badly, for the document's parent (docs/children.md). Default false. */
  readonly failed?: true
}

/** What a phase's documents need while they are worked on. */
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
  /** `'any'`: every phase that isn't final, but for `goTo` itself. */
  readonly from: readonly Names[] | 'any'
  /** Where it goes as soon as nobody holds it. */
  readonly goTo: Names
  /** What becomes of its `state` then. Default: it stays. */
  readonly setState?: State
}

/** Settings of a lifecycle, each with its unit in its value (`'30s'`). */
export interface LifecycleSettingsSpec<Named extends readonly string[] | undefined = undefined> {
  /** How long a lease lasts without a renewal: what a crash costs. Default 30s, at least 1s. */
  readonly lockTimeout?: Duration
  /** How long one step may run. Default 5m. */
  readonly stepTimeout?: Duration
  /** Errors in a row until the document is parked. Default 20. */
  readonly maxAttempts?: number
  /** How long documents sleep between looks and after errors. */
  readonly backOff?: {
    /** A waiting document sleeps for this share of the time waited so far, 0.01 to 1. Default 0.1. */
    readonly share?: number
    /** Once it has waited for longer than this, it sleeps for a whole lockTimeout each time. Default 2m. */
    readonly patience?: Duration
    /** The pause after the first error in a row; doubled with each further one, +-20 %. Default 1s. */
    readonly firstError?: Duration
    /** The longest pause after an error. Default 5m. */
    readonly longestError?: Duration
    /**
     * After so many steps in a row without a new phase, a wait or an error a warning is logged, and from then on there is a pause after each
     * step: 100 ms, and up to 1 s. For documents that take more, as pages of a long list: more. Default 1000.
     */
    readonly afterSteps?: number
  }
  /** Handlers that one replica runs at once. Default 32. */
  readonly concurrency?: number
  /** What each document needs while a replica holds it, in every working phase (docs/limits.md). Default: nothing. */
  readonly limits?: readonly LimitSpec[]
  /** At most so many of its documents are worked on at once, by all replicas together. Default: any number. */
  readonly maxActive?: number
  /**
   * What is called after the outcome is stored (docs/callbacks.md): each has an implementation in `handle`, or a method with `Callback`. Documents
   * keep in `progress.outbox` what they haven't been told yet; needs an index of its own. Default: none.
   */
  readonly callbacks?: readonly CallbackName[]
  /** How long a callback may take until its signal aborts and it counts as failed, 100ms to 1h. Default 30s. */
  readonly callbackTimeout?: Duration
  /**
   * What is kept of its documents beyond the newest 20 entries of their histories (docs/events.md): `full`: each end of a step; `sampled`: all of one
   * document in a hundred, and errors, parks and deadlines of every one. `for`: how long, 1h to 3650d, default 7d; `most`: how many events,
   * default 1,000,000. Default `off`.
   * @example 'full'
   * @example { keep: 'sampled', for: '30d' }
   */
  readonly events?:
    | 'off'
    | 'sampled'
    | 'full'
    | { readonly keep: 'off' | 'sampled' | 'full'; readonly for?: Duration; readonly most?: number }
  /** Claims without a recorded outcome until the document is parked as poison. Default 10. */
  readonly maxClaims?: number
  /**
   * Whether its documents may be the children of others (docs/children.md): then their collection has an index on `progress.parent`, and the
   * end of each of them is told to its parent. Default false.
   */
  readonly child?: boolean
  /**
   * Whether legacy writers lease documents of this lifecycle too: by `lockedAt` alone, without `lockedBy`. Their leases are then
   * distinguished from sleeps, and nothing of theirs is overwritten. Default false. See docs/upgrading.md.
   */
  readonly legacyWriters?: boolean
  /**
   * The owner's top-level fields that handlers read, besides `_id`, `state` and Phaselock's own: nothing else of a document is
   * fetched, handlers find nothing else in it, and its type there has nothing else. For big documents of which they need
   * little. Default: the whole document.
   */
  readonly reads?: Named
  /** Renames the field that holds all of Phaselock's data beyond its seven names. Default `progress`. */
  readonly fields?: { readonly progress?: string }
}

/** The top-level fields of a document; of a union, the fields of each. */
export type FieldOf<Doc> = Doc extends unknown ? keyof Doc & string : never

/** What `reads` may name. */
export type Reads<Doc> = readonly FieldOf<Doc>[]

/**
 * What handlers find in a document: all of it, or the fields that `reads` names and, where `Doc` declares them, those that are
 * fetched whatever it names (`RESERVED_FIELDS`).
 */
export type ReadDocument<Doc, Named extends readonly string[] | undefined> = Named extends readonly (infer Field)[]
  ? PickOf<Doc, Field | ReservedField>
  : Doc

type PickOf<Doc, Field> = Doc extends unknown ? Pick<Doc, keyof Doc & Field> : never
