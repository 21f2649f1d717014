import { CANCELLED, type EndKind, type RecordedOutcome } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'
import type { AnyHandler } from '../../definition/bound-lifecycle.js'
import { InvalidOutcome } from '../../errors/errors.js'
import { causesText } from '../../errors/recorded-error.js'
import type { LeaseLoss, StepEnded } from '../../reporting/observer.js'
import type { PrefetchTargets } from '../concurrency/prefetch-target.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import type { Held } from '../lease/held.js'
import type { Ending, EndingRules } from './ending-rules.js'
import { type Checkpoint, deepCopy, StepContext, StepRun } from './step-run.js'

/**
 * The activity of one phase's handlers since the last beat. A step costs it two counts and two looks at the clock (0.4 us, measured); to follow each
 * handler through its awaits (async_hooks) costs more than the step itself.
 */
export class PhaseActivity {
  /** The time that its longest call since the last beat ran before it first waited for something. */
  longestCallMs = 0
  /** True if a step was running since the last beat. */
  ran = false
  private running = 0

  constructor(
    readonly lifecycle: string,
    readonly phase: string,
    private readonly clock: Clock,
  ) {}

  began(): void {
    this.running += 1
    this.ran = true
  }
  ended(): void {
    this.running -= 1
  }

  /** Calls a handler, and measures how long it keeps the event loop until its first await. */
  call<T>(handler: () => T): T {
    const startedMs = this.clock.monotonicMs()
    try {
      return handler()
    } finally {
      const ms = this.clock.monotonicMs() - startedMs
      if (ms > this.longestCallMs) this.longestCallMs = ms
    }
  }

  reset(): void {
    this.longestCallMs = 0
    this.ran = this.running > 0
  }
}

export interface StepRunnerOptions {
  readonly checkpoint: Checkpoint
  readonly handlers: Readonly<Record<string, AnyHandler>>
  readonly endings: EndingRules
  readonly prefetchTargets: PrefetchTargets
  /** The activities that record a phase's steps, where handlers run on the event loop. */
  readonly activities: ReadonlyMap<string, PhaseActivity>
}

/** Runs handlers, each to its end or until it is given up. */
export class StepRunner {
  /** The number of handlers that were given up and still run. */
  abandonedCount = 0

  constructor(
    private readonly env: LifecycleEnvironment,
    private readonly options: StepRunnerOptions,
  ) {}

  /** Runs one step of a document, and returns its ending, by its handler or without one. */
  run(held: Held): Ending | Promise<Ending> {
    const { endings, prefetchTargets, activities, checkpoint } = this.options
    const early = endings.withoutHandler(held)
    if (early) return early
    const run = new StepRun(held, this.env, checkpoint)
    // A handler in a thread doesn't block this event loop.
    const activity = held.kind === 'loop' ? activities.get(held.phase.name) : undefined
    activity?.began()
    held.run = run
    return run.settle({
      call: () => this.callHandler(held, run, activity),
      ended: (settled) => {
        held.run = undefined
        activity?.ended()
        if (settled.kind === 'abandoned') this.abandonedCount += 1
        prefetchTargets[held.kind].ran(run.ranMs())
        return endings.after(held, run, settled)
      },
      late: () => this.endedLate(held),
    })
  }

  /** Calls the handler with a copy: its changes to the object must not reach the next step. */
  private callHandler(held: Held, run: StepRun, activity: PhaseActivity | undefined): Promise<unknown> {
    const call = () => this.options.handlers[held.phase.name]!(deepCopy(held.document), new StepContext(run))
    return activity ? activity.call(call) : call()
  }

  private endedLate(held: Held): void {
    this.abandonedCount -= 1
    reportLoss(this.env, held, 'abandoned')
  }
}

/**
 * Reports the end of each step: to the observer and, where a person should know, to the log, which is bounded. An error there is a bug in code, or a
 * document that no replica goes on with. A decision of a handler, or an error that is tried again, is a warning.
 * @param token the token of the record
 */
export function reportEnd(env: LifecycleEnvironment, held: Held, ending: Ending, token: string): void {
  const { end, ms } = ending
  const { model, observer } = env
  const phase = held.phase.name
  const outcome = outcomeOf(end)
  const reason = reasonOf(end)
  const to = end.kind === 'moveTo' ? end.to : phase
  const ended = { lifecycle: model.name, id: held.lease.id, phase, step: end.step, to, outcome, reason, ms }
  if (outcome === 'error' || outcome === 'park' || outcome === 'deadline') logEnd(env, end, ended)
  countFlow(env, held, end, ended)
  observer.stepEnded(ended)
  env.events?.ended(ended, token)
}

/** Counts a step that was recorded: about 0.1 us, and a look at the clock for one that left its phase. */
function countFlow({ model, flow, serverNow }: LifecycleEnvironment, held: Held, end: EndKind, ended: StepEnded): void {
  const { phase, to, outcome } = ended
  const since: unknown = to === phase ? undefined : held.document[model.settings.progress]?.since
  flow.moved(phase, to, outcome, 1, since instanceof Date ? serverNow().getTime() - since.getTime() : undefined)
  if (end.kind === 'error' || end.kind === 'park') flow.caused(end, held.lease.id)
}

function reasonOf(end: EndKind): string | null {
  if (end.kind === 'ask') return end.question.question
  if ('reason' in end) return end.reason ?? null
  return 'error' in end && end.error ? end.error.message : null
}

function logEnd({ lines }: LifecycleEnvironment, end: EndKind, ended: StepEnded): void {
  const { lifecycle, id, phase, step, outcome, reason } = ended
  const about = { lifecycle, id, phase, step }
  if (end.kind === 'error') {
    const { error } = end
    const level = error.name === InvalidOutcome.name ? 'error' : 'warn'
    lines[level]({ kind: 'a step failed', phase, name: error.name }, `a step failed: ${reason}${causesText(error)}`, {
      ...about,
      error,
    })
  } else if (outcome === 'park') {
    const isWanted = end.kind === 'park' && (end.error === null || end.error.name === CANCELLED)
    const level = isWanted ? 'warn' : 'error'
    lines[level]({ kind: 'parked', phase }, `parked: ${reason}`, about)
  } else lines.warn({ kind: 'deadline passed', phase }, `deadline passed: ${reason}`, about)
}

function outcomeOf(end: EndKind): RecordedOutcome {
  if (end.kind === 'sleepUntilDeadline') return 'wait'
  if (end.kind === 'quarantine') return 'park'
  return end.kind === 'moveTo' && end.by === 'deadline' ? 'deadline' : end.kind
}

/** Reports that a write under a token changed nothing, or that another holder was found. */
export function reportLoss(env: LifecycleEnvironment, held: Held, how: LeaseLoss['how'], error?: unknown): void {
  const about = { lifecycle: env.model.name, id: held.lease.id, token: held.lease.token }
  const why = error instanceof Error ? `: ${error.message}` : ''
  const phase = held.phase.name
  const cause = { kind: `lease lost (${how})`, phase }
  env.lines.warn(cause, `lease lost (${how}): ${EXPLAINED[how]}${why}`, { ...about, phase })
  env.observer.leaseLost({ ...about, how })
}

const EXPLAINED: Record<LeaseLoss['how'], string> = {
  refused:
    'another replica has the document, or its owner replaced it; this outcome was dropped and nothing was changed',
  movedOn: 'the document has moved on in the meantime; whether this outcome was recorded before that is unknown',
  renewal: 'a renewal found another holder; the step was asked to stop',
  abandoned: 'a handler that had been given up has ended; its outcome was dropped',
  givenUp:
    'the database keeps failing to record this outcome, through no fault of the document; once its lease has run out, the step is repeated',
}
