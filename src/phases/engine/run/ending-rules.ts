import {
  asksTheSame,
  CANCELLED,
  type CancelRequest,
  cancelText,
  type EndKind,
  errorPauseMs,
  hasPendingInsert,
  MOST_OPEN,
  outboxIn,
  PHASE_FIELDS,
  type RecordedError,
  type StepEnd,
  stepPauseMs,
} from '../../../lock/index.js'
import { numbered, typed } from '../../../options/index.js'
import { CausesOfErrors } from '../../errors/cause.js'
import { InvalidOutcome, StepTimeout, Unavailable } from '../../errors/errors.js'
import { cut, textOf, tried } from '../../errors/kept-text.js'
import { causesText, recordedError } from '../../errors/recorded-error.js'
import { type ReadOutcome, readOutcome, readSet } from '../../outcome/outcome.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import { countOf, deadlineOf, type Held } from '../lease/held.js'
import type { NewLists } from './step-children.js'
import type { Settled, StepRun } from './step-run.js'
import type { Asked } from './step-waits.js'

/**
 * After so many bugs of the program in a row a document is parked: more tries only repeat their effects. Not by a program that a newer one is
 * replacing: that one has its own tries.
 */
const MOST_BUGS = 3
/** The errors that show a bug of the program: no outage ends them. By their names, because those of threads are other classes. */
const BUGS: ReadonlySet<string> = new Set(['InvalidOutcome', 'InvalidOptions'])

export type Ending = StepEnd

type Fields = Readonly<Record<string, unknown>>

export const goesOn = ({ end }: Ending): boolean => end.kind === 'again' && end.keepsLease

/** The time that a document sleeps before its next step, because it has taken too many in a row; undefined: it doesn't. */
export function betweenStepsMs({ end }: Ending): number | undefined {
  return end.kind === 'again' || (end.kind === 'moveTo' && end.inCircles) ? end.forMs : undefined
}

const LONGEST_PAUSE_MS = 365 * 86_400_000

/** Turns the result of a handler into the ending that is recorded: one rule for each way to end. */
export class EndingRules {
  private readonly progress: string
  private readonly causes: CausesOfErrors

  constructor(
    private readonly env: Pick<
      LifecycleEnvironment,
      'model' | 'isSuperseded' | 'serverClock' | 'serverNow' | 'random' | 'logger'
    >,
    /** True if a chain of steps gives its document back: it has gone on for long while others wait, or the replica stops. */
    private readonly yields: (held: Held) => boolean,
  ) {
    const { name, settings } = env.model
    this.progress = settings.progress
    this.causes = new CausesOfErrors(settings.causeOf, (problem) => env.logger.warn(`${name}: ${problem}`))
  }

  /** The ending of a document that needs no handler: cancelled before its step began, unreadable, poison, past its deadline, or resting until it. */
  withoutHandler(held: Held): Ending | undefined {
    if (held.cancelled) return this.released(held)
    if (held.unreadable) return this.unreadable(held, held.unreadable)
    const claims = countOf(held.document[this.progress]?.claims)
    if (claims > this.env.model.settings.maxClaims) {
      const reason = `claimed ${numbered(claims - 1, 'time')} without a recorded outcome: its handler kills or outlives its replicas`
      const error = { name: 'Poison', message: reason }
      return this.ending(held, { kind: 'park', step: this.stepName(held), reason, error }, 0)
    }
    // An insert has left data for the write that lets go of the document: the next claim begins with that data.
    if (hasPendingInsert(held.document[this.progress])) return this.released(held)
    const undelivered = this.env.model.settings.callbacks ? outboxIn(held.document[this.progress]) : undefined
    if (undelivered && undelivered.open.length >= MOST_OPEN) {
      const reason = cut(
        `${undelivered.open.length} calls of its callbacks, ${undelivered.error ?? 'none of which has ended'}`,
        'reason',
      )
      return this.ending(held, { kind: 'wait', step: this.stepName(held), reason, forMs: null }, 0)
    }
    const deadline = this.deadlineOf(held)
    if (deadline && deadline <= this.env.serverNow()) return this.ending(held, this.deadlineMove(held), 0)
    if (held.phase.kind === 'resting') return this.ending(held, { kind: 'sleepUntilDeadline', step: null }, 0)
    return undefined
  }

  /** The ending after a handler's run. Never throws, whatever the handler returned or threw. */
  after(held: Held, run: StepRun, settled: Settled): Ending {
    const ms = run.ranMs()
    const isLate = run.aborted?.why === 'deadline'
    try {
      if (settled.kind === 'returned') {
        const outcome = readOutcome(settled.value, run, held.phase, this.progress)
        const end = outcome.kind === 'moveTo' ? undefined : this.stopped(held, isLate)
        const ending = this.ending(held, end ?? this.endOf(held, outcome, run), ms, outcome.set)
        // It waits for something else: its question is withdrawn.
        const withdraws = ending.end.kind === 'wait' && run.asked && !run.asked.answer
        return withdraws ? { ...ending, stale: [...ending.stale, 'question'] } : ending
      }
      if (held.cancelled) return this.released(held, ms)
      if (isLate) return this.ending(held, this.deadlineMove(held), ms)
      return this.afterThrow(held, run, settled.kind === 'threw' ? settled.error : undefined, ms)
    } catch (error) {
      if (held.cancelled) return this.released(held, ms)
      return this.afterError(held, error, ms)
    }
  }

  /** The ending of a document that the driver can't read: a person has to see to it. */
  unreadable(held: Held, error: Error): Ending {
    const why = recordedError(error)
    const reason = `the driver can't read it (${why.message}): fix that field, read it with bsonRegExp: true, or leave it out (reads)`
    return this.ending(held, { kind: 'park', step: null, reason: cut(reason, 'reason'), error: why }, 0)
  }

  /** The ending of a document whose step hasn't begun, or had to be stopped through no fault of its own; its owner's cancel stands. */
  released(held: Held, ms = 0): Ending {
    if (held.cancelled) return this.ending(held, this.cancellation(held, held.cancelled), ms)
    return this.ending(held, { kind: 'released', step: this.stepName(held) }, ms)
  }

  /** The last resort for a document that takes neither its outcome nor an error: no write that makes it bigger. */
  quarantine(held: Held, refused: EndKind, ms: number, error: Error): Ending {
    const why = refused.kind === 'park' ? `${refused.reason}; ` : ''
    const reason = cut(`${why}this could not be stored: ${error.message}`, 'reason')
    return this.ending(held, { kind: 'quarantine', step: this.stepName(held), reason }, ms)
  }

  /** @throws InvalidOutcome for a set that no outcome may have either */
  checkpoint(held: Held, set: Fields, ms: number, also?: NewLists): Ending {
    const fields = readSet(set, this.progress)
    return { ...this.ending(held, { kind: 'checkpoint', step: this.stepName(held), ...also }, ms, fields), stale: [] }
  }

  /** The time that a document entering a phase sleeps: until its deadline when it rests, until its removal when it's final. */
  private sleepIn(to: string): number | undefined {
    const phase = this.env.model.phases.get(to)
    if (phase?.kind === 'final') return phase.keepForMs
    return phase?.kind === 'resting' ? phase.deadline?.afterMs : undefined
  }

  private endOf(held: Held, outcome: ReadOutcome, run: StepRun): EndKind {
    const step = this.stepName(held)
    switch (outcome.kind) {
      case 'again': {
        const forMs = this.pauseAfter(held)
        const keepsLease = forMs === undefined && !this.yields(held)
        const folds = step === held.lastAgain || undefined
        return { kind: 'again', step, nextStep: outcome.step, keepsLease, folds, forMs }
      }
      case 'wait': {
        const { reason, forMs } = outcome
        const on = outcome.on ?? run.awaits?.on
        const wait = { kind: 'wait', step, reason, ...(on !== undefined && { on }) } as const
        if (!run.awaits) return { ...wait, forMs }
        return { ...wait, forMs: forMs ?? run.awaits.recheckMs, awaits: run.awaits.stored }
      }
      case 'ask': {
        const { question, forMs } = outcome
        return { kind: 'ask', step, question, forMs, ...askedBefore(run.asked, outcome) }
      }
      case 'moveTo': {
        const inCircles = this.isInCircles(held, outcome.phase) || undefined
        const pauseMs = inCircles && this.pauseAfter(held)
        const { afterMs = Number.POSITIVE_INFINITY } = this.env.model.phases.get(outcome.phase)?.deadline ?? {}
        const forMs = pauseMs ? Math.min(pauseMs, afterMs) : this.sleepIn(outcome.phase)
        return { kind: 'moveTo', step, to: outcome.phase, forMs, by: 'handler', reason: null, inCircles }
      }
      case 'park':
        return { kind: 'park', step, reason: outcome.reason, error: null }
    }
  }

  /** The ending that replaces an outcome within the same phase, when the step was to stop for good. */
  private stopped(held: Held, isLate: boolean): EndKind | undefined {
    if (held.cancelled) return this.cancellation(held, held.cancelled)
    return isLate ? this.deadlineMove(held) : undefined
  }

  private cancellation(held: Held, request: CancelRequest): EndKind {
    const reason = cut(cancelText(request), 'reason')
    return { kind: 'park', step: this.stepName(held), reason, error: { name: CANCELLED, message: reason } }
  }

  private deadlineMove(held: Held): EndKind {
    const { moveTo, setState, afterMs } = held.phase.deadline!
    const state: unknown = held.document['state'] ?? null
    return {
      kind: 'moveTo',
      step: this.stepName(held),
      to: moveTo,
      forMs: this.sleepIn(moveTo),
      by: 'deadline',
      reason: cut(`longer than ${afterMs} ms in ${held.phase.name}${this.waitingFor(held)}`, 'reason'),
      setState: setState === undefined || !isState(state) ? undefined : { ifState: state, state: setState },
    }
  }

  private pauseAfter({ steps }: Held): number | undefined {
    return stepPauseMs(steps + 1, this.env.model.settings.backOff)
  }

  /** True if it goes to work in a phase that it has come from, according to its history. */
  private isInCircles({ document, phase }: Held, to: string): boolean {
    if (this.env.model.phases.get(to)?.kind !== 'working') return false
    const history: unknown = document[this.progress]?.history
    return to === phase.name || (Array.isArray(history) && history.some((entry) => entry?.from === to))
  }

  private afterThrow(held: Held, run: StepRun, error: unknown, ms: number): Ending {
    if (error instanceof Unavailable) {
      const end = { kind: 'unavailable', step: this.stepName(held), ...unavailable(error) } as const
      return this.ending(held, end, ms)
    }
    if (run.aborted?.why === 'step timeout') {
      return this.afterError(held, new StepTimeout(this.env.model.settings.stepTimeoutMs), ms)
    }
    // It was asked to stop for the replica's sake: no attempt is used.
    if (run.aborted) return this.released(held, ms)
    return this.afterError(held, error, ms)
  }

  /** The ending after an error of its handler, or of the server about its outcome: an attempt is used. */
  afterError(held: Held, thrown: unknown, ms: number): Ending {
    const attempts = countOf(held.document[this.progress]?.attempts)
    const recorded = this.withBugs(recordedError(thrown), held, attempts)
    const error = { ...recorded, cause: this.causes.of(thrown, recorded, held.lease.id) }
    const attempt = 1 + attempts
    const { name, settings } = this.env.model
    const isBug = error.bugs !== undefined && error.bugs >= MOST_BUGS && !this.env.isSuperseded()
    if (isBug || attempt >= settings.maxAttempts) {
      const last = `${error.message}${causesText(error)}`
      const reason = isBug
        ? `a bug of the program, ${error.bugs} times in a row: ${last} (after the mend, all of these: phaselock operations run unpark --lifecycle ${typed(name)} --bugs)`
        : `${numbered(attempt, 'error')} in a row, the last: ${last}`
      return this.ending(held, { kind: 'park', step: this.stepName(held), reason, error, usesAttempt: true }, ms)
    }
    const pauseMs = errorPauseMs(attempt, this.env.random(), this.env.model.settings.backOff)
    return { ...this.ending(held, { kind: 'error', step: this.stepName(held), error }, ms), pauseMs }
  }

  private withBugs(error: RecordedError, { document }: Held, attempts: number): RecordedError {
    if (!BUGS.has(error.name)) return error
    const before = attempts > 0 ? countOf(document[this.progress]?.error?.bugs) : 0
    return { ...error, bugs: before + 1 }
  }

  private ending(held: Held, end: EndKind, ms: number, set?: Fields): Ending {
    const { lease, steps } = held
    return {
      lease,
      end: this.causes.in(end, lease.id),
      ms,
      set,
      steps: steps + 1,
      wakeBy: this.deadlineOf(held),
      stale: this.staleFields(held, end),
    }
  }

  private deadlineOf(held: Held): Date | null {
    if (!held.phase.deadline) return null // the usual case: without a look at the clock
    return deadlineOf(held, this.progress, this.env.serverClock.deadlineHold())
  }

  /** Fields of this document's `progress` that are no longer true after the ending. */
  private staleFields(held: Held, end: EndKind): string[] {
    const gone = STALE_AFTER[end.kind]
    const progress = held.document[this.progress] ?? {}
    const fields = gone.filter((field) => field in progress && !isSetBy(end, field))
    if (end.kind === 'again' && end.nextStep === null && 'step' in progress) fields.push('step')
    return fields
  }

  /** The name of its step. An owner may have put anything there. */
  private stepName(held: Held): string | null {
    const step: unknown = held.document[this.progress]?.step
    return typeof step === 'string' ? cut(step, 'stepName') : null
  }

  private waitingFor(held: Held): string {
    const reason = held.document[this.progress]?.waitingFor
    return typeof reason === 'string' ? `, waiting for: ${reason}` : ''
  }
}

/**
 * Counts how often a question was asked, and keeps an earlier one that is still open.
 * @throws InvalidOutcome for one that has been answered: it would be asked forever
 */
function askedBefore(
  asked: Asked | undefined,
  { question }: Extract<ReadOutcome, { kind: 'ask' }>,
): { readonly times: number; readonly keeps?: true } {
  if (!asked || !asksTheSame(asked.question, question)) return { times: 1 }
  const { times } = asked.question
  if (!asked.answer) return { times, keeps: true }
  if (asked.answer.timedOut) return { times: times + 1 }
  const { option, by } = asked.answer
  throw new InvalidOutcome(
    `ask: ${by} has answered '${option}', and the same was asked again: look at step.answer first, or ask something else`,
  )
}

/** The reason and the pause of an Unavailable. JavaScript may have given it anything; a pause of years would no longer be a pause. */
function unavailable(error: Unavailable): { reason: string; forMs: number | null } {
  const given: unknown = tried(() => error.reason)
  const reason = cut(textOf(given, ''), 'reason') || 'unavailable'
  const forMs: unknown = tried(() => error.retryAfterMs)
  return { reason, forMs: typeof forMs === 'number' && forMs >= 0 ? Math.min(forMs, LONGEST_PAUSE_MS) : null }
}

/** True for a state. Any other value means nothing here, and is the owner's. */
const isState = (state: unknown): boolean => typeof state === 'string' || state === null

/** True if an ending sets a field. Its kind removes the field from some documents, and sets it in others. */
function isSetBy(end: EndKind, field: string): boolean {
  if (field === 'awaits') return end.kind === 'wait' && end.awaits !== undefined
  if (field === 'waitingOn') return end.kind === 'wait' && end.on !== undefined
  if (field === 'resumeAt') {
    return (end.kind === 'again' || end.kind === 'moveTo') && end.forMs !== undefined
  }
  return field === 'steps' && end.kind === 'moveTo' && end.inCircles === true
}

const STALE_AFTER: Record<EndKind['kind'], readonly string[]> = {
  again: ['waitingFor', 'waitingOn', 'waitingSince', 'resumeAt', 'error', 'question', 'answer', 'awaits'],
  wait: ['error', 'steps', 'awaits', 'waitingOn'],
  ask: ['steps', 'waitingFor', 'waitingOn', 'waitingSince', 'error', 'answer', 'awaits'],
  unavailable: ['steps', 'awaits', 'waitingOn'],
  moveTo: PHASE_FIELDS,
  park: ['steps', 'waitingFor', 'waitingOn', 'waitingSince', 'resumeAt', 'awaits'],
  error: ['steps', 'waitingFor', 'waitingOn', 'waitingSince', 'awaits'],
  released: ['resumeAt'],
  checkpoint: [],
  quarantine: [],
  sleepUntilDeadline: ['waitingFor', 'waitingOn', 'waitingSince', 'error'],
}
