import type { Ring } from '../../doorbell/index.js'
import type { CallbackName, RecordedOutcome } from '../../lock/index.js'
import { tellObservers } from '../../observers/index.js'
import type { BoundedLog } from './bounded-log.js'

/** A step was recorded. */
export interface StepEnded {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The phase that it ran in. */
  readonly phase: string
  /** The phase that follows; the same unless the document moved. */
  readonly to: string
  /** The document's `_id`. */
  readonly id: unknown
  /** The name that `again({ step })` gave it; null: the phase's first one. */
  readonly step: string | null
  /** The outcome: `again`, `wait`, `moveTo`, `park`, `error`, `unavailable`, ... */
  readonly outcome: RecordedOutcome
  /** The reason of a wait or a park, or the error's message; null: none. */
  readonly reason: string | null
  /** The time that the handler ran, in ms. */
  readonly ms: number
}

/** A callback was called, or given up. */
export interface CalledBack {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: unknown
  /** The callback's name: `onMoved`. */
  readonly callback: CallbackName
  /** The number of the document's event that it was called for. */
  readonly seq: number
  /** 1 for the first call for this event. */
  readonly attempt: number
  /** `told`: it returned; `failed`: it is called again after a pause; `parked`: it has failed too often, and waits for a person. */
  readonly outcome: 'told' | 'failed' | 'parked'
  /** The reason why it failed; null: it didn't. */
  readonly reason: string | null
  /** The time that it took, in ms. */
  readonly ms: number
}

/** Events for `phaselock.events` that this replica has left out. */
export interface EventsLost {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The number of events. */
  readonly count: number
  /** The reason: the database doesn't keep up, refuses them, or the replica has stopped. */
  readonly why: string
}

/** This replica no longer has a document that it worked on, or whose outcome it was recording. */
export interface LeaseLoss {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: unknown
  /** The `lockedBy` of its lease. */
  readonly token: string
  /**
   * `refused`: an outcome came late and changed nothing; `movedOn`: the same, but it may have been recorded before; `renewal`: a renewal found
   * another holder, the step's signal was aborted; `abandoned`: the outcome of a handler that had been given up; `givenUp`: the database kept failing
   * to take an outcome, through no fault of the document.
   */
  readonly how: 'refused' | 'movedOn' | 'renewal' | 'abandoned' | 'givenUp'
}

/** A claim is over. */
export interface Claiming {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The phase whose documents were claimed. */
  readonly phase: string
  /** The number of documents that this replica has won. */
  readonly claimed: number
  /** The number of candidates that went to another replica. */
  readonly lost: number
}

/** A tick is over. */
export interface Ticked {
  /** The time that it took, in seconds. */
  readonly seconds: number
  /** The error that ended it early; undefined: none. */
  readonly error?: unknown
}

/** A document that isn't as Phaselock needs it; the others go on. Reported once for each document and reason. */
export interface BrokenDocument {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: unknown
  /**
   * The problem: a field by its name, with another type in it; or the reason why it refuses writes: `tooLarge`, `validator`, `uniqueIndex`,
   * `refused`; `_id` where no command matches it; `unreadable` where the driver can't read it.
   */
  readonly reason: BrokenReason
  /** The value that was found there ('a string'), or the server's message. */
  readonly found: string
  /**
   * `mended`: it has a sound value now; `leftAlone`: it stays, and counts as missing; `putAside`: quarantined, `lockedAt` is 9999-12-31 and nothing
   * else of it was changed; `skipped`: it refuses writes, this replica tries again after growing pauses.
   */
  readonly fate: 'mended' | 'leftAlone' | 'putAside' | 'skipped'
}

/** A field of the wrong type by its name, or the reason why a document refuses writes. */
export type BrokenReason =
  | 'lockedAt'
  | 'lockedBy'
  | 'fence'
  | 'createdAt'
  | 'updatedAt'
  | 'phase'
  | 'progress'
  | 'priority'
  | '_id'
  | 'tooLarge'
  | 'validator'
  | 'uniqueIndex'
  | 'refused'
  | 'unreadable'

/** The event loop of the process didn't turn for a while. */
export interface LoopBlocked {
  /** The least time that it was blocked, in ms. */
  readonly ms: number
  /** The phases whose handlers ran in the meantime; empty: none of this replica's, so something else in the process blocked it. */
  readonly by: readonly { readonly lifecycle: string; readonly phase: string }[]
  /** True if the handler in `by` blocked it: it ran for half of the time or more without a pause. Otherwise any of those in `by` may have done it. */
  readonly certain: boolean
  /**
   * The part of the time when the process waited for a processor, because the machine or its container's limit gave it none (Linux; elsewhere 0). If
   * the rest is less than the limit, `by` is empty: no handler is to blame.
   */
  readonly withoutCpuMs: number
}

/** The rings since the last time, one or more. */
export type Rung = Ring

/** Something outside that a lifecycle's documents wait for is watched, or can't be. */
export interface Watched {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The source: `cluster eu-1`. */
  readonly source: string
  /** The kind of thing that is watched there: `Certificate`. */
  readonly what: string
  /** True if it is watched, false if it can't be; undefined: it needn't be watched any more. */
  readonly up: boolean | undefined
}

/** Sleeping documents were woken by background work of their lifecycle. */
export interface Woken {
  /** The lifecycle's name. */
  readonly lifecycle: string
  /** The number of documents. */
  readonly count: number
  /** The source of the news that they were woken for; undefined: none was named. */
  readonly source: string | undefined
}

/** The server's clock stepped: this replica has seen it, or another has reported it. */
export interface ClockStepped {
  /** The size of the step; below 0: back. */
  readonly ms: number
}

/** The events inside a replica, each with its data. */
export interface ReplicaEvents {
  /** A claim is over, won or not. */
  claimed: Claiming
  /** A step was recorded. */
  stepEnded: StepEnded
  /** A callback was called after an outcome was stored. */
  calledBack: CalledBack
  /** Events weren't kept, though their lifecycle wants them to be. */
  eventsLost: EventsLost
  /** A lease was lost, or an outcome dropped. */
  leaseLost: LeaseLoss
  /** A state rule moved documents. */
  ruled: { lifecycle: string; state: string; to: string; count: number }
  /** A document was found that isn't as Phaselock needs it; once for each document and reason. */
  broken: BrokenDocument
  /** Documents of a final phase were removed, after `keepFor`. */
  removed: { lifecycle: string; phase: string; count: number }
  /** A tick is over, with how long it took. */
  ticked: Ticked
  /** This replica acts on rings. */
  rung: Rung
  /** Background work has woken sleeping documents. */
  woken: Woken
  /** Something outside is watched, or can't be. */
  watched: Watched
  /** The event loop stood still for longer than `blockedAfter`. */
  loopBlocked: LoopBlocked
  /** The server's clock has stepped. */
  clockStepped: ClockStepped
}

/** The one list of all events; leaving one out doesn't compile. */
export const REPLICA_EVENTS = Object.keys({
  claimed: true,
  stepEnded: true,
  calledBack: true,
  eventsLost: true,
  leaseLost: true,
  ruled: true,
  broken: true,
  removed: true,
  ticked: true,
  rung: true,
  woken: true,
  watched: true,
  loopBlocked: true,
  clockStepped: true,
} satisfies Record<keyof ReplicaEvents, true>) as readonly (keyof ReplicaEvents)[]

/** An observer of a replica's events, for metrics and hooks. Observers must not throw; what they throw is logged and dropped. */
export type ReplicaObserver = { [event in keyof ReplicaEvents]?: (told: ReplicaEvents[event]) => void }

/** One observer that notifies several; what one throws or rejects with is only logged. */
export function observers(all: readonly ReplicaObserver[], lines: BoundedLog): Required<ReplicaObserver> {
  const tell = (name: keyof ReplicaObserver) => {
    const kind = `an observer's ${name} threw`
    const threw = (error: unknown) => lines.error({ kind }, `${kind}: ${String(error)}`)
    return (event: unknown) => tellObservers(all, name, event, threw)
  }
  return Object.fromEntries(REPLICA_EVENTS.map((name) => [name, tell(name)])) as unknown as Required<ReplicaObserver>
}
