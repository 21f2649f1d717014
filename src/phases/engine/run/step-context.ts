import type { Document } from 'mongodb'
import { leaseUnmoved, underHold } from '../../../lock/index.js'
import { Outcomes, type OwnFields } from '../../outcome/outcome.js'
import type { DocumentPhases, Reached, WaitForOptions } from '../../outcome/waits.js'
import { type Logger, withFields } from '../../reporting/logger.js'
import type {
  Child,
  ChildrenDone,
  ChildrenDoneOptions,
  ChildrenOptions,
  ChildrenRemoved,
  RemoveChildrenOptions,
} from '../../step/children.js'
import { COMES_AT } from '../../step/comes-at.js'
import { LEASE_UNMOVED } from '../../step/holder.js'
import type { ChildDocument, Progress, Step, StepAnswer } from '../../step/step.js'
import { IN_THREAD, type RunsThreads, type ThreadDeclaration } from '../../threads/index.js'
import { countOf } from '../lease/held.js'
import { deepCopy } from './deep-copy.js'
import type { StepRun } from './step-run.js'

type AnyDoc = Record<string, unknown>

/** The step as its handler sees it. Its getters read the run, so that no part is made that a handler doesn't use. */
export class StepContext extends Outcomes implements Step<string, AnyDoc>, RunsThreads {
  readonly #run: StepRun
  #progress: Progress | undefined

  constructor(run: StepRun) {
    super(run)
    this.#run = run
  }

  get name(): string | undefined {
    const { step } = this.#run.progress
    return typeof step === 'string' ? step : undefined
  }
  get fence(): number {
    return this.#run.fence
  }
  get signal(): AbortSignal {
    return this.#run.signal
  }
  get attempt(): number {
    return 1 + countOf(this.#run.progress.attempts)
  }
  get waitedMs(): number {
    return this.#run.waitedMs
  }
  get answer(): StepAnswer | undefined {
    return this.#run.asked?.answer
  }
  /** A copy, like the document: a handler's changes to it must not reach the engine. */
  get progress(): Progress {
    this.#progress ??= deepCopy(this.#run.progress)
    return this.#progress
  }
  get [LEASE_UNMOVED](): Document {
    return leaseUnmoved(this.#run.env.model.settings)
  }
  [COMES_AT](time: Date): Date {
    return underHold(time, this.#run.env.serverClock.deadlineHold())
  }
  get log(): Logger {
    return withFields(this.#run.env.logger, this.#run.about)
  }

  leaseLeftMs(): number {
    return this.#run.held.lease.leftMs()
  }
  checkpoint(set: OwnFields<AnyDoc>): Promise<void> {
    return this.#run.checkpoint(set)
  }

  children(children: readonly Child[], options?: ChildrenOptions): Promise<void> {
    return this.#run.children.insert(children, options)
  }
  childrenDone(options: ChildrenDoneOptions): Promise<ChildrenDone> {
    return this.#run.children.done(options)
  }

  async childrenOf<Read>(lifecycle: { name: string; $doc: Read }): Promise<ChildDocument<Read>[]> {
    return (await this.#run.children.documentsOf(lifecycle)) as ChildDocument<Read>[]
  }
  removeChildren(options?: RemoveChildrenOptions): Promise<ChildrenRemoved> {
    return this.#run.children.remove(options)
  }
  waitFor(target: DocumentPhases, options?: WaitForOptions): Promise<Reached> {
    return this.#run.waitFor(target, options)
  }

  /** Runs a handler that was made by `thread(...)`. */
  [IN_THREAD](declaration: ThreadDeclaration, document: AnyDoc): Promise<unknown> {
    return this.#run.inThread(declaration, document, this)
  }
}
