import type { Ring } from '../../doorbell/index.js'
import type { CallbackName, RecordedOutcome } from '../../lock/index.js'
import { tellObservers } from '../../observers/index.js'
import type { BoundedLog } from './bounded-log.js'

/** A step was recorded. */
export interface StepEnded {
  /** Its name. */
  readonly lifecycle: string
  /** The phase in which it ran. */
  readonly phase: string
  /** The phase that follows; the same unless the document moved. */
  readonly to: string
  /** The document's `_id`. */
  readonly id: unknown
  /** The name that `again({ step })` gave it; null: the phase's first one. */
  readonly step: string | null
  /** How it ended: `again`, `wait`, `moveTo`, `park`, `error`, `unavailable`, ... */
  readonly outcome: RecordedOutcome
  /** What it waits for, why it is parked, or the error's message; null: none. */
  readonly reason: string | null
  /** How long the handler ran, in ms. */
  readonly ms: number
}

/** A callback was called, or given up. */
export interface CalledBack {
  /** Its name. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: unknown
  /** Its name: `onMoved`. */
  readonly callback: CallbackName
  /** Which of the document's events it was called for. */
  readonly seq: number
  /** 1 for the first call for this event. */
  readonly attempt: number
  /** `told`: it returned; `failed`: it is called again after a pause; `parked`: it has failed too often, and waits for a person. */
  readonly outcome: 'told' | 'failed' | 'parked'
  /** Why it failed; null: it didn't. */
  readonly reason: string | null
  /** How long it took, in ms. */
  readonly ms: number
}

/** Events for `phaselock.events` that this replica has left out. */
export interface EventsLost {
  /** Its name. */
  readonly lifecycle: string
  /** How many. */
  readonly count: number
  /** Why: the database doesn't keep up, refuses them, or the replica has stopped. */
  readonly why: string
}

/** This replica no longer has a document that it worked on, or whose outcome it was recording. */
export interface LeaseLoss {
  /** Its name. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: unknown
  /** The `lockedBy` under which it was held. */
  readonly token: string
  /**
   * `refused`: an outcome came late and changed nothing; `movedOn`: the same, but it may have been recorded before; `renewal`: a renewal
   * found another holder, the step's signal was aborted; `abandoned`: the outcome of a handler that had been given up; `givenUp`: the
   * database kept failing to take an outcome, through no fault of the document.
   */
  readonly how: 'refused' | 'movedOn' | 'renewal' | 'abandoned' | 'givenUp'
}

/** A claim is over. */
export interface Claiming {
  /** Its name. */
  readonly lifecycle: string
  /** The phase whose documents were claimed. */
  readonly phase: string
  /** How many this replica has won. */
  readonly claimed: number
  /** Candidates that went to another replica. */
  readonly lost: number
}

/** A tick is over. */
export interface Ticked {
  /** How long it took. */
  readonly seconds: number
  /** What ended it early; undefined: nothing. */
  readonly error?: unknown
}

/** A document that isn't as Phaselock needs it; the others go on. Reported once for each document and reason. */
export interface BrokenDocument {
  /** Its name. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly id: unknown
  /**
   * What is wrong with it: a field by its name, with another type in it; or why it refuses writes: `tooLarge`, `validator`,
   * `uniqueIndex`, `refused`; `_id` where no command matches it; `unreadable` where the driver can't read it.
   */
  readonly reason: BrokenReason
  /** What was found there ('a string'), or the server's message. */
  readonly found: string
  /**
   * `mended`: it has a sound value now; `leftAlone`: it stays, and counts as missing; `putAside`: `lockedAt` is 9999-12-31
   * and nothing else of it was changed; `skipped`: it refuses writes, this replica tries again after growing pauses.
   */
  readonly fate: 'mended' | 'leftAlone' | 'putAside' | 'skipped'
}

/** A field of the wrong type by its name, or why a document refuses writes. */
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
  /** For how long at least. */
  readonly ms: number
  /** Whose handlers ran meanwhile; empty: none of this replica's, so something else in the process blocked it. */
  readonly by: readonly { readonly lifecycle: string; readonly phase: string }[]
  /** Whether it was the one in `by`: its handler ran for half of it or more without a pause. Otherwise any of those in `by` may have done it. */
  readonly certain: boolean
  /**
   * How long of that the process waited for a processor, as the machine or its container's limit gave it none (Linux; elsewhere 0). If the
   * rest is less than the limit, `by` is empty: no handler is to blame.
   */
  readonly withoutCpuMs: number
}

/** Somebody has rung, once or often since the last time. */
export type Rung = Ring

/** Something outside that a lifecycle's documents wait for is watched, or can't be. */
export interface Watched {
  /** Its name. */
  readonly lifecycle: string
  /** Where: `cluster eu-1`. */
  readonly source: string
  /** What of it: `Certificate`. */
  readonly what: string
  /** undefined: it needn't be watched any more. */
  readonly up: boolean | undefined
}

/** Sleeping documents were woken by background work of their lifecycle. */
export interface Woken {
  /** Its name. */
  readonly lifecycle: string
  /** How many. */
  readonly count: number
  /** The source of the news that they were woken for; undefined: none was named. */
  readonly source: string | undefined
}

/** The server's clock stepped, as this replica has seen or was told. */
export interface ClockStepped {
  /** How far; below 0: back. */
  readonly ms: number
}

/** What happens inside a replica: each event and its data. */
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

/** The one list of them; leaving one out doesn't compile. */
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

/** Notified of what happens inside a replica, for metrics and hooks. Observers must not throw; what they throw is logged and dropped. */
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
