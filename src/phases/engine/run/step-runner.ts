import type { Capacity } from '../claim/capacity.js'
import type { Held } from '../lease/held.js'
import type { HeldDocuments } from '../lease/held-documents.js'
import { reportLoss } from '../report/reports.js'
import type { RunnerContext } from '../runner-context.js'
import { deepCopy } from './deep-copy.js'
import type { Ending, EndingRules, Situation } from './ending-rules.js'
import type { PhaseActivity } from './loop-monitor.js'
import { StepRun } from './step-run.js'

export interface StepRunnerOptions {
  readonly context: RunnerContext
  readonly holdings: HeldDocuments
  readonly capacityOf: (phase: string) => Capacity
  readonly endings: EndingRules
  readonly situation: (held: Held) => Situation
  /** A turn's end: without an ending the document is to be dropped. A place is free already. */
  readonly onEnded: (held: Held, ending: Ending | undefined) => void
  /** Stores fields in the middle of a step; false: the lease is lost. */
  readonly checkpoint: (held: Held, set: Record<string, unknown>) => Promise<boolean>
}

/** Runs the handlers of what is held, in order, within the concurrency. A handler begins only under a lease with time left. */
export class StepRunner {
  private runningNow = 0
  private runningInThreads = 0
  private abandonedNow = 0
  private stopped = false

  constructor(private readonly options: StepRunnerOptions) {}

  get running(): number {
    return this.runningNow
  }
  /** Handlers that were given up and still run. */
  get abandoned(): number {
    return this.abandonedNow
  }

  /** Begins as many turns as there are places, and of handlers in threads as there are threads. */
  begin(): void {
    const { context, holdings } = this.options
    while (this.runningNow < context.model.settings.concurrency) {
      const held = holdings.next(this.runningInThreads < context.threads.size)
      if (!held) break
      this.runningNow += 1
      if (this.isInThread(held)) this.runningInThreads += 1
      void this.turn(held)
    }
  }

  /** From now on no handler begins: what comes to its turn is unlocked. */
  stop(): void {
    this.stopped = true
  }

  /** One turn of a document: its step from the lease check to the handler's end; recording goes on without the place. */
  private async turn(held: Held): Promise<void> {
    const { context, onEnded } = this.options
    let ending: Ending | undefined
    try {
      ending = await this.step(held)
    } catch (error) {
      const message = `${context.model.name}: a turn failed: ${String(error)}`
      context.lines.error({ kind: 'a turn failed', phase: held.phase.name }, message, { id: held.lease.id, error })
    }
    this.runningNow -= 1
    if (this.isInThread(held)) this.runningInThreads -= 1
    onEnded(held, ending)
  }

  private async step(held: Held): Promise<Ending | undefined> {
    const { context, endings, capacityOf, situation: situationOf } = this.options
    if (held.lease.leftMs() === 0 || this.stopped) return endings.released(held)
    const situation = situationOf(held)
    const early = endings.withoutHandler(held, situation)
    if (early) return early
    const { model, clock, logger } = context
    const run = new StepRun(held, {
      lifecycle: model.name,
      progressField: model.settings.progress,
      marking: model.settings,
      clock,
      logger,
      lines: context.lines,
      serverNow: situation.now,
      checkpoint: (set) => this.options.checkpoint(held, set),
      threads: context.threads,
    })
    // A thread's handler keeps no event loop.
    const activity = this.isInThread(held) ? undefined : context.activities.get(held.phase.name)
    activity?.began()
    held.run = run
    const settled = await run.settle(
      () => this.callHandler(held, run, activity),
      () => this.endedLate(held),
    )
    held.run = undefined
    activity?.ended()
    if (settled.kind === 'abandoned') this.abandonedNow += 1
    capacityOf(held.phase.name).ran(run.ranMs())
    return endings.after(held, run, settled, situationOf(held))
  }

  /** With a copy: what a handler does to the object that it was given must not reach the next step. */
  private callHandler(held: Held, run: StepRun, activity: PhaseActivity | undefined): Promise<unknown> {
    const call = () => this.options.context.handlers[held.phase.name]!(deepCopy(held.document), run.context)
    return activity ? activity.call(call) : call()
  }

  private isInThread(held: Held): boolean {
    return this.options.context.threadPhases.has(held.phase.name)
  }

  private endedLate(held: Held): void {
    this.abandonedNow -= 1
    reportLoss(this.options.context, held, held.lease.token, 'abandoned')
  }
}
