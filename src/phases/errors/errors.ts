import { idText } from '../../lock/index.js'
import { brand, checkOptions, InvalidOptions, numbered, t } from '../../options/index.js'
import { type Duration, durationMs } from '../../time/index.js'
import { shown, textOf } from './kept-text.js'

const UNAVAILABLE_OPTIONS = t.object({ retryAfter: t.anything(), cause: t.anything() })

const listed = (problems: readonly string[]) => problems.map((problem) => `  - ${problem}`).join('\n')

/**
 * The outside world is down (a cluster, an API): throw it from a handler and the document backs off without using attempts. A 20-minute outage parks
 * nothing.
 */
export class Unavailable extends Error {
  override readonly name = 'Unavailable'
  /** The time in milliseconds until the next try, if the other side gave one. */
  readonly retryAfterMs: number | undefined
  /** The text for people: stored as the reason of the document's wait. */
  readonly reason: string
  /**
   * @param reason the thing that is unavailable, for people; plain JavaScript may pass an error, which is the cause then
   * @param options `retryAfter`: the time that the other side asked to be left alone; `cause`: stored with its own causes
   * @throws InvalidOptions
   */
  constructor(reason: string, options: { retryAfter?: Duration; cause?: unknown } = {}) {
    if (options instanceof Error)
      throw new InvalidOptions('new Unavailable', ['expected options, got an error; give it as { cause: error }'])
    checkOptions('new Unavailable', UNAVAILABLE_OPTIONS, options)
    const given: unknown = reason // JavaScript may pass anything
    const error = given instanceof Error ? given : undefined
    const isText = typeof given === 'string' || given === undefined
    const message = error ? textOf(error) : isText ? given : `expected a reason, got ${shown(given)}`
    super(message, { cause: options.cause ?? error })
    this.reason = error || typeof given === 'symbol' ? this.message : reason
    this.retryAfterMs = options.retryAfter === undefined ? undefined : durationMs(options.retryAfter, 'retryAfter')
  }
}

/** Thrown by `step.checkpoint` only: another holder has the document now, so the handler must not go on. Nothing was stored. */
export class LeaseLost extends Error {
  override readonly name = 'LeaseLost'
  constructor(
    /** The lifecycle's name. */
    readonly lifecycle: string,
    /** The document's `_id`. */
    readonly id: unknown,
    /** The `lockedBy` of its lease. */
    readonly token: string,
  ) {
    super(
      `the lease on ${lifecycle} ${idText(id)} (${token}) was lost: another replica has the document, or its owner replaced it. Stop; nothing was stored.`,
    )
  }
}

/** The reason why a running step's signal aborted. */
export class StepAborted extends Error {
  override readonly name = 'StepAborted'
  constructor(
    /**
     * `lease in danger`: two thirds of it are over without a renewal; `deadline`: the phase's, after which it moves on; `cancelled`: by its owner.
     */
    readonly why: 'lease in danger' | 'lease lost' | 'step timeout' | 'deadline' | 'shutdown' | 'cancelled',
    detail: string = why,
  ) {
    super(`the step was asked to stop: ${detail}`)
  }
}

/** A step that ran longer than its step timeout; recorded as an attempt. */
export class StepTimeout extends Error {
  override readonly name = 'StepTimeout'
  constructor(
    /** The lifecycle's `stepTimeout`, in ms. */
    readonly afterMs: number,
  ) {
    super(`the step did not end within its step timeout of ${afterMs} ms`)
  }
}

/** A callback that took longer than `callbackTimeout`; it is called again after a pause. */
export class CallbackTimeout extends Error {
  override readonly name = 'CallbackTimeout'
  constructor(
    /** The lifecycle's `callbackTimeout`, in ms. */
    readonly afterMs: number,
  ) {
    super(`the callback did not end within its callbackTimeout of ${afterMs} ms`)
  }
}

/** A handler that returned something other than an outcome of its own step; recorded as an attempt. */
export class InvalidOutcome extends Error {
  override readonly name = 'InvalidOutcome'
}

/** The error that `runOnce` throws when a document has taken too many steps in a row (`backOff.afterSteps`): its phase may never end. */
export class EndlessSteps extends Error {
  override readonly name = 'EndlessSteps'
  constructor(
    /** The lifecycle's name. */
    readonly lifecycle: string,
    /** The document's `_id`. */
    readonly id: unknown,
    /** The phase that it is in. */
    readonly phase: string,
    /** The number of steps in a row. */
    readonly steps: number,
  ) {
    super(
      `${lifecycle} ${idText(id)} has taken ${numbered(steps, 'step')} in a row without a new phase, a wait or an error, the last in ${phase}: do its handlers' again() or moveTo() go in circles? If it needs that many, raise the lifecycle's backOff.afterSteps`,
    )
  }
}

/** A lifecycle definition or its handlers that can't work; lists every problem found. */
export class InvalidLifecycle extends Error {
  override readonly name = 'InvalidLifecycle'
  constructor(
    /** The lifecycle's name as it was given. */
    readonly lifecycle: string,
    /** One sentence for each problem. */
    readonly problems: readonly string[],
  ) {
    super(`lifecycle '${lifecycle}' can't work:\n${listed(problems)}`)
  }
}

/** A bound lifecycle was used before a replica or client gave it a database. */
export class NotAttached extends Error {
  override readonly name = 'NotAttached'
  constructor(
    /** The lifecycle's name. */
    readonly lifecycle: string,
  ) {
    super(
      `lifecycle '${lifecycle}' has no database yet: expected it to be given to a Replica, or attach(db) to be called, first`,
    )
  }
}

/** `new Replica` with options that it can't use: names each, with what was expected and what was given. */
export class InvalidReplicaOptions extends Error {
  override readonly name = 'InvalidReplicaOptions'
  constructor(
    /** One sentence for each problem. */
    readonly problems: readonly string[],
  ) {
    super(`a replica can't use these options:\n${listed(problems)}`)
  }
}

/** `start()` of a replica that was stopped: its identity, threads and timers are gone for good. Nothing runs. */
export class ReplicaStopped extends Error {
  override readonly name = 'ReplicaStopped'
  constructor(readonly identity: string) {
    super(`expected a replica that was never stopped, but ${identity} was: make another one with new Replica({...})`)
  }
}

/** Lifecycles that would work on the same documents: one database, one collection, a phase in common. Nothing was changed. */
export class OverlappingLifecycles extends Error {
  override readonly name = 'OverlappingLifecycles'
  constructor(
    /** One sentence for each pair of lifecycles that overlap. */
    readonly problems: readonly string[],
  ) {
    super(`expected each document to belong to one lifecycle, got lifecycles that overlap:\n${listed(problems)}`)
  }
}

/** With `indexes: 'check'` an index or collection is missing that a replica may not create; lists the commands that create it. */
export class MissingIndexes extends Error {
  override readonly name = 'MissingIndexes'
  constructor(
    /** The database that was looked at. */
    readonly database: string,
    /** The missing parts, each with the command for mongosh that makes it. */
    readonly missing: readonly { readonly what: string; readonly command: string }[],
  ) {
    const problems = listed(missing.map(({ what }) => what))
    const commands = [`use ${database}`, ...missing.map(({ command }) => command)].map((line) => `  ${line}`).join('\n')
    super(
      `expected the database '${database}' to be prepared (indexes: 'check'), but it is not:\n${problems}\nrun in mongosh, as a user who may:\n${commands}`,
    )
  }
}

/** A state that the lifecycle doesn't name, which no rule would ever act on. Nothing was set. */
export class UnknownState extends Error {
  override readonly name = 'UnknownState'
  constructor(
    /** The lifecycle's name. */
    readonly lifecycle: string,
    /** The state that was given. */
    readonly state: unknown,
    /** The states that its rules name. */
    readonly known: readonly string[],
    problem: string,
  ) {
    super(`${problem}; { force: true } stores it anyway, for handlers that read it`)
  }
}

/** A document with such a key exists already: this one was not inserted. The server's error is its cause. */
export class DocumentExists extends Error {
  override readonly name = 'DocumentExists'
  /** The server's code, as in the error that this one stands for. */
  readonly code = 11000
  /**
   * @param index of the key: `_id_`, or a unique index of the owner's
   * @param inserted the number of documents inserted along with it that are stored: the ones before it
   */
  constructor(
    /** The lifecycle's name. */
    readonly lifecycle: string,
    /** The `_id` that is taken, or that of the document whose unique field is. */
    readonly id: unknown,
    readonly index: string,
    readonly inserted: number,
    cause: Error,
    /** The reason why the `_id` is taken, where there is more to say. */
    readonly taken?: string | undefined,
  ) {
    const key = /dup key: (\{.*\})/s.exec(cause.message)?.[1]?.slice(0, 200)
    const why =
      index === '_id_'
        ? (taken ?? 'it exists already')
        : `the unique index ${index} has its key already${key ? ` (${key})` : ''}`
    const before = inserted > 0 ? `; the ${inserted} before it are stored` : ''
    super(`${lifecycle} ${idText(id)} was not inserted: ${why}${before}`, { cause })
  }
}

/** A document that no replica would ever work on, or that would be stored as something other than it is. Nothing was inserted. */
export class InvalidDocument extends Error {
  override readonly name = 'InvalidDocument'
  constructor(
    /** The lifecycle's name. */
    readonly lifecycle: string,
    /** The phase that was given. */
    readonly phase: unknown,
    /** The phases that documents may be in. */
    readonly known: readonly string[],
    problem = `expected a phase of ${lifecycle} (${known.join(', ')}), got ${JSON.stringify(phase)}`,
  ) {
    super(`${problem}; nothing was inserted`)
  }
}

/** A step inserts a child of an unknown lifecycle, or of one whose documents aren't declared to be children. Nothing was inserted. */
export class UnknownChild extends Error {
  override readonly name = 'UnknownChild'
  constructor(
    /** The lifecycle that was named. */
    readonly lifecycle: string,
    problem: string,
  ) {
    super(`children: ${problem}; nothing was inserted`)
  }
}

/** The `_id` of a new child is taken by a document that isn't the same child of this parent. Those of its list before it may be inserted. */
export class ChildExists extends Error {
  override readonly name = 'ChildExists'
  constructor(
    /** The child's lifecycle. */
    readonly lifecycle: string,
    /** The `_id` that is taken. */
    readonly id: unknown,
    /** The owner of the document that exists. */
    readonly whose: string,
    /** The list from which a former document with the parent's `_id` has inserted it; undefined: it belongs to another owner. */
    readonly formerList?: string | undefined,
  ) {
    const removal = `remove it first (step.removeChildren({ lists: ['${formerList}'] })), or give the child another _id`
    const cure = formerList === undefined ? 'give the child another _id, or leave it out' : removal
    super(`children: ${lifecycle} ${idText(id)} is ${whose}: ${cure}`)
  }
}

brand({
  UnknownChild,
  ChildExists,
  Unavailable,
  LeaseLost,
  StepAborted,
  StepTimeout,
  InvalidOutcome,
  EndlessSteps,
  InvalidLifecycle,
  UnknownState,
  DocumentExists,
  InvalidDocument,
})
