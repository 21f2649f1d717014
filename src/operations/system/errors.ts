/** The obstacle that prevented an operation, for programs: its kind, and its subject. */
export type Obstacle =
  | { readonly reason: 'unknownLifecycle'; readonly lifecycle: string; readonly known: readonly string[] }
  | { readonly reason: 'noLifecycles'; readonly database: string; readonly others: readonly string[] }
  | { readonly reason: 'unknownPhase' | 'unknownState'; readonly got: unknown; readonly known: readonly string[] }
  | { readonly reason: 'invalidId'; readonly id: string }
  | { readonly reason: 'ambiguousId'; readonly id: string; readonly meant: readonly unknown[] }
  | { readonly reason: 'ambiguousLifecycle'; readonly id: string; readonly lifecycles: readonly string[] }
  | { readonly reason: 'invalidField'; readonly fields: readonly string[] }
  | { readonly reason: 'invalidDuration'; readonly got: string }
  | { readonly reason: 'noDocument'; readonly id: unknown; readonly lifecycles: readonly string[] }
  | {
      readonly reason: 'noLifecycle' | 'noSchedule' | 'noRun' | 'noRegion' | 'noLock' | 'noReplica' | 'noLimit'
      readonly name: string
    }
  | {
      readonly reason: 'changedSince'
      readonly lifecycle: string
      readonly id: unknown
      /** The fields that are no longer as they were seen; empty: none that the digest shows. */
      readonly changed: readonly string[]
      /** The last change that its history or the audit has; null: neither has any. `at`: null if that isn't stored. */
      readonly last: { readonly by: string; readonly did: string; readonly at: Date | null } | null
      /** The digest of the document as it is now. */
      readonly seen: string
    }
  | { readonly reason: 'exists'; readonly lifecycle: string; readonly id: unknown }
  | { readonly reason: 'held' | 'notHeld' | 'parked' | 'notParked'; readonly lifecycle: string; readonly id: unknown }
  | {
      readonly reason: 'notAsking' | 'alreadyAnswered' | 'timedOut' | 'notAnOption'
      readonly lifecycle: string
      readonly id: unknown
    }
  | { readonly reason: 'nothingToTell' | 'beingTold' | 'removed'; readonly lifecycle: string; readonly id: unknown }
  | { readonly reason: 'notPaused' | 'tooManyPauses' | 'tooManyCancels'; readonly lifecycle: string | undefined }
  | { readonly reason: 'pausedByOthers'; readonly by: readonly string[] }
  | { readonly reason: 'changeUnderWay'; readonly lifecycle: string; readonly until: Date }
  | {
      readonly reason: 'lifecycleInUse'
      readonly lifecycle: string
      readonly documents: number
      readonly replicas: readonly string[]
    }
  | { readonly reason: 'regionInUse'; readonly region: string; readonly uses: readonly object[] }
  | { readonly reason: 'lockChangedHands'; readonly name: string }
  | { readonly reason: 'noCause'; readonly id: string }
  | { readonly reason: 'acknowledgedByAnother'; readonly id: string; readonly by: string }

/** An operation was refused and did nothing. The class is the kind of refusal; the message has the problem and the advice. */
export abstract class OperationError extends Error {
  constructor(
    /** The problem alone, without the advice. */
    readonly problem: string,
    /** The obstacle that prevented it, for programs; undefined if there is only the message. */
    readonly obstacle?: Obstacle | undefined,
    /** The advice, in the words of the command line, as in all messages of Phaselock. */
    readonly advice?: string | undefined,
  ) {
    super(advice === undefined ? problem : `${problem}${problem.endsWith('?') ? '' : ';'} ${advice}`)
  }
}

/** The request can't be understood: unknown names, values out of range, text that isn't JSON. */
export class UsageError extends OperationError {
  override readonly name = 'UsageError'
}

/** There is no such document, schedule, lock or the like. */
export class NotFound extends OperationError {
  override readonly name = 'NotFound'
}

/** The current state forbids it: the document is held, parked, not parked, or exists already. */
export class Refused extends OperationError {
  override readonly name = 'Refused'
}
