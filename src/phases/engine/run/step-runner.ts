import type { AnyHandler } from '../../definition/bound-lifecycle.js'
import type { ThreadPool } from '../../threads/index.js'
import type { PrefetchTargets } from '../concurrency/prefetch-target.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import type { Held } from '../lease/held.js'
import { deepCopy } from './deep-copy.js'
import type { Ending, EndingRules } from './ending-rules.js'
import type { PhaseActivity } from './loop-monitor.js'
import { reportLoss } from './reports.js'
import { StepContext } from './step-context.js'
import { type Checkpoint, StepRun } from './step-run.js'

export interface StepRunnerOptions {
  readonly threads: ThreadPool
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
    const { endings, prefetchTargets, activities, threads, checkpoint } = this.options
    const early = endings.withoutHandler(held)
    if (early) return early
    const run = new StepRun(held, this.env, threads, checkpoint)
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
