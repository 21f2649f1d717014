import type { Document } from 'mongodb'
import { leaseUnmoved, underHold } from '../../../lock/index.js'
import { LeaseLost, StepAborted } from '../../errors/errors.js'
import { Outcomes, type OwnFields } from '../../outcome/outcome.js'
import { type Logger, withFields } from '../../reporting/logger.js'
import { COMES_AT, LEASE_UNMOVED } from '../../step/holder.js'
import type { ChildDocument, Progress, Step, StepAnswer } from '../../step/step.js'
import { IN_THREAD, type RunsThreads, type ThreadDeclaration } from '../../threads/index.js'
import type { LifecycleEnvironment } from '../context/environment.js'
import { type CurrentStep, countOf, type Held, waitedMs } from '../lease/held.js'
import { type NewLists, StepChildren } from './step-children.js'
import { type Asked, type Awaits, askedIn, waitFor } from './step-waits.js'

/** Stores fields under the token and changes it; false: the lease is lost. */
export type Checkpoint = (held: Held, set: OwnFields<Record<string, unknown>>, also?: NewLists) => Promise<boolean>

export type Settled =
  | { readonly kind: 'returned'; readonly value: unknown }
  | { readonly kind: 'threw'; readonly error: unknown }
  /** Given up: it went on after its signal had aborted, for longer than any caller may wait. */
  | { readonly kind: 'abandoned' }

export interface StepCalls<Result> {
  readonly call: () => unknown
  readonly ended: (settled: Settled) => Result
  readonly late: () => void
}

/** The rounds of the lease guard that a handler has at least between the abort of its signal and being given up. */
const GRACE_ROUNDS = 3

/** One run of one handler: its signal, its clock, and its end. */
export class StepRun implements CurrentStep {
  /** The fence of this step; a checkpoint leaves it alone. */
  readonly fence: number
  aborted: StepAborted | undefined
  private readonly madeAtMs: number
  private startedAtMs: number
  private waitsForThread = false
  private question: { readonly asked: Asked | undefined } | undefined
  /** The condition that ends the sleep if the handler returns a wait: the last one that it found undecided. */
  awaits: Awaits | undefined
  private itsChildren: StepChildren | undefined
  private controller: AbortController | undefined
  private giveUp: ((settled: Settled) => void) | undefined
  private over = false
  /** The time when it was first found to be past its time, and the number of rounds that found it so. */
  private overtime: { readonly sinceMs: number; rounds: number } | undefined

  constructor(
    readonly held: Held,
    readonly env: LifecycleEnvironment,
    private readonly storeFields: Checkpoint,
  ) {
    this.madeAtMs = env.clock.monotonicMs()
    this.startedAtMs = this.madeAtMs
    this.fence = held.lease.fence
  }

  get about() {
    const { lease, phase } = this.held
    return { lifecycle: this.env.model.name, id: lease.id, phase: phase.name, token: lease.token }
  }
  get progress(): Progress {
    return this.held.document[this.env.model.settings.progress] ?? {}
  }

  /** The question and its answer: it is judged just as the handler sees it. */
  get asked(): Asked | undefined {
    const { serverNow, serverClock } = this.env
    this.question ??= { asked: askedIn(this.progress, serverNow, () => serverClock.deadlineHold()) }
    return this.question.asked
  }

  get children(): StepChildren {
    this.itsChildren ??= new StepChildren(this)
    return this.itsChildren
  }

  /** Made when first asked for: most handlers never look at it. */
  get signal(): AbortSignal {
    this.controller ??= new AbortController()
    if (this.aborted) this.controller.abort(this.aborted)
    return this.controller.signal
  }

  get waitedMs(): number {
    const { serverNow, clock, model } = this.env
    const madeAt = new Date(serverNow().getTime() - (clock.monotonicMs() - this.madeAtMs))
    return waitedMs(this.held, model.settings.progress, madeAt)
  }

  /** The time that the handler ran; 0 as long as it waits for a thread: its step timeout doesn't count that. */
  ranMs(): number {
    if (this.waitsForThread) return 0
    return this.env.clock.monotonicMs() - this.startedAtMs
  }

  abort(why: StepAborted['why'], detail?: string): void {
    if (this.aborted) return
    this.aborted = new StepAborted(why, detail)
    this.controller?.abort(this.aborted)
  }

  get hasBegun(): boolean {
    return !this.waitsForThread
  }

  inThread(
    declaration: ThreadDeclaration,
    document: Record<string, unknown>,
    step: Step<string, Record<string, unknown>>,
  ): Promise<unknown> {
    const { model, clock, threads } = this.env
    return threads.run(declaration, document, model.settings.progress, step, {
      waits: () => {
        this.waitsForThread = true
      },
      begins: () => {
        this.waitsForThread = false
        this.startedAtMs = clock.monotonicMs()
        // The lease may have expired while this process was paused: a handler begins only under a lease with time left.
        if (this.held.lease.leftMs() === 0) this.abort('lease in danger')
      },
    })
  }

  /**
   * Runs the handler to its end, or until it is given up. There is one promise, and no other between the handler's and its ending: with a race of
   * several a step costs 21 us of CPU instead of 16 (measured).
   */
  settle<Result>({ call, ended, late }: StepCalls<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      const end = (settled: Settled) => {
        if (this.over) return late()
        this.over = true
        try {
          resolve(ended(settled))
        } catch (error) {
          reject(error)
        }
      }
      this.giveUp = end
      const threw = (error: unknown) => end({ kind: 'threw', error })
      // A handler in JavaScript may throw synchronously, or return no promise.
      try {
        Promise.resolve(call()).then((value) => end({ kind: 'returned', value }), threw)
      } catch (error) {
        threw(error)
      }
    })
  }

  ranOver(graceMs: number): void {
    const now = this.env.clock.monotonicMs()
    this.overtime ??= { sinceMs: now, rounds: 0 }
    this.overtime.rounds += 1
    const isGivenUp = now - this.overtime.sinceMs >= graceMs && this.overtime.rounds > GRACE_ROUNDS
    if (isGivenUp && !this.over) this.giveUp?.({ kind: 'abandoned' })
  }

  /** Stores fields while the step runs: in the order of the calls, and before its outcome. */
  checkpoint(set: OwnFields<Record<string, unknown>>, also?: NewLists): Promise<void> {
    const stored = this.store(set, also)
    stored.catch(() => undefined) // the handler catches it; one that doesn't await it must not end the process
    return stored
  }

  private async store(set: OwnFields<Record<string, unknown>>, also?: NewLists): Promise<void> {
    if (this.over) {
      const message = 'checkpoint was called after the step had ended: nothing was stored'
      this.env.lines.warn({ kind: 'late checkpoints', phase: this.about.phase }, message, this.about)
    } else {
      if (await this.storeFields(this.held, set, also)) return
      this.abort('lease lost')
    }
    const { lifecycle, id, token } = this.about
    throw new LeaseLost(lifecycle, id, token)
  }
}

type AnyDoc = Record<string, unknown>
type AnyStep = Step<string, AnyDoc>

/** The step as its handler sees it. Its getters read the run, so that no part is made that a handler doesn't use. */
export class StepContext extends Outcomes implements AnyStep, RunsThreads {
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

  children(...given: Parameters<AnyStep['children']>) {
    return this.#run.children.insert(...given)
  }
  childrenDone(...given: Parameters<AnyStep['childrenDone']>) {
    return this.#run.children.done(...given)
  }
  async childrenOf<Read>(lifecycle: { name: string; $doc: Read }): Promise<ChildDocument<Read>[]> {
    return (await this.#run.children.documentsOf(lifecycle)) as ChildDocument<Read>[]
  }
  removeChildren(...given: Parameters<AnyStep['removeChildren']>) {
    return this.#run.children.remove(...given)
  }
  waitFor(...given: Parameters<AnyStep['waitFor']>) {
    return waitFor(this.#run, ...given)
  }

  [IN_THREAD](declaration: ThreadDeclaration, document: AnyDoc): Promise<unknown> {
    return this.#run.inThread(declaration, document, this)
  }
}

/**
 * A copy of a document that shares nothing mutable with it. Plain objects and arrays are copied, dates too; BSON's own
 * values (ObjectId, Decimal128, ...) are taken as they are: nothing in them is meant to be changed.
 */
export function deepCopy<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map(deepCopy) as T
  if (value instanceof Date) return new Date(value.getTime()) as T
  if (Object.getPrototypeOf(value) !== Object.prototype) return value
  const copy = { ...value } as Record<string, unknown>
  for (const key in copy) {
    const own = copy[key]
    if (typeof own === 'object' && own !== null) setOwn(copy, key, deepCopy(own))
  }
  return copy as T
}

/** Sets fields of a document in place, or removes those that are undefined; a field may have any name that BSON allows. */
export function assignOwn(target: Record<string, unknown>, fields: Readonly<Record<string, unknown>>): void {
  for (const key of Object.keys(fields)) {
    if (fields[key] === undefined) delete target[key]
    else setOwn(target, key, fields[key])
  }
}

/** Sets a field. Assigned like any other, a field `__proto__` would become the object's prototype. */
function setOwn(target: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== '__proto__') target[key] = value
  else Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true })
}
