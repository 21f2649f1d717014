import type { Document } from 'mongodb'
import { leaseUnmoved } from '../../../lock/index.js'
import type { Duration } from '../../../time/index.js'
import { LEASE_UNMOVED } from '../../holder.js'
import { type Logger, withFields } from '../../logger.js'
import type { Outcome, OwnFields, WithSet } from '../../outcome.js'
import type { Progress, Step } from '../../step.js'
import { IN_THREAD, type RunsThreads, type ThreadDeclaration } from '../../threads/index.js'
import { countOf } from '../lease/held.js'
import { deepCopy } from './deep-copy.js'
import { MADE_BY } from './read-outcome.js'
import type { StepRun } from './step-run.js'

type AnyDoc = Record<string, unknown>

/** What a handler sees of its run. Its getters read the run, so that nothing is made that a handler doesn't use. */
export class StepContext implements Step<string, AnyDoc>, RunsThreads {
  readonly #run: StepRun
  #progress: Progress | undefined

  constructor(run: StepRun) {
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
  /** A copy, as the document is: what a handler does to it must not reach the engine. */
  get progress(): Progress {
    this.#progress ??= deepCopy(this.#run.progress)
    return this.#progress
  }
  get [LEASE_UNMOVED](): Document {
    return leaseUnmoved(this.#run.marking)
  }
  get log(): Logger {
    const { lifecycle, held } = this.#run
    return withFields(this.#run.logger, {
      lifecycle,
      id: held.lease.id,
      phase: held.phase.name,
      token: held.lease.token,
    })
  }

  leaseLeftMs(): number {
    return this.#run.held.lease.leftMs()
  }
  again(also?: { step?: string } & WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'again', ...also })
  }
  wait(reason: string, also?: { for?: Duration } & WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'wait', reason, ...also })
  }
  moveTo<P extends string>(phase: P, also?: WithSet<AnyDoc>): Outcome<P, AnyDoc> {
    return this.#made({ kind: 'moveTo', phase, ...also })
  }
  park(reason: string, also?: WithSet<AnyDoc>): Outcome<never, AnyDoc> {
    return this.#made({ kind: 'park', reason, ...also })
  }
  checkpoint(set: OwnFields<AnyDoc>): Promise<void> {
    return this.#run.checkpoint(set)
  }

  /** For a handler that was made by `thread(...)`. */
  [IN_THREAD](declaration: ThreadDeclaration, document: AnyDoc): Promise<unknown> {
    return this.#run.inThread(declaration, document, this)
  }

  #made<T extends object>(outcome: T): T {
    return Object.assign(outcome, { [MADE_BY]: this.#run })
  }
}
