import type { MessagePort } from 'node:worker_threads'
import type { StepAborted } from '../errors/errors.js'
import type { StepAnswer } from '../step/step.js'
import type { ThreadDeclaration } from './declaration.js'
import type { SentError } from './sent-error.js'

/** The reasons why a step was asked to stop, by their numbers in the cell; 0: it wasn't. */
const REASONS: readonly StepAborted['why'][] = [
  ...(['lease in danger', 'lease lost', 'step timeout', 'deadline', 'shutdown', 'cancelled'] as const),
]

/**
 * Memory that both threads share while a step runs. A handler that computes without a pause reads in it why it must stop, and until when its lease
 * lasts at least (`processMs`). The replica reads in it if the thread has begun with the step.
 */
export class Cell {
  private readonly reason: Int32Array
  private readonly started: Int32Array
  private readonly leaseUntil: Float64Array

  constructor(readonly buffer = new SharedArrayBuffer(16)) {
    this.reason = new Int32Array(buffer, 0, 1)
    this.started = new Int32Array(buffer, 4, 1)
    this.leaseUntil = new Float64Array(buffer, 8, 1)
  }

  get why(): StepAborted['why'] | undefined {
    return REASONS[Atomics.load(this.reason, 0) - 1]
  }
  set why(why: StepAborted['why'] | undefined) {
    Atomics.store(this.reason, 0, why === undefined ? 0 : 1 + REASONS.indexOf(why))
  }

  get hasBegun(): boolean {
    return Atomics.load(this.started, 0) === 1
  }
  begins(): void {
    Atomics.store(this.started, 0, 1)
  }

  get leaseUntilMs(): number {
    return this.leaseUntil[0]!
  }
  set leaseUntilMs(ms: number) {
    this.leaseUntil[0] = ms
  }
}

/** A step that a thread is to run. */
export interface StepTask {
  readonly declaration: ThreadDeclaration
  readonly document: Uint8Array
  readonly progressField: string
  readonly name: string | undefined
  readonly fence: number
  readonly attempt: number
  readonly waitedMs: number
  readonly answer: StepAnswer | undefined
  readonly cell: SharedArrayBuffer
  readonly port: MessagePort
}

/** The end of a step in its thread. */
export type StepResult =
  | { readonly kind: 'returned'; readonly value: unknown; readonly set: Uint8Array | undefined }
  | { readonly kind: 'threw'; readonly error: SentError }

export type ToThread =
  | { readonly kind: 'abort' }
  | { readonly kind: 'stored'; readonly checkpoint: number; readonly error: SentError | undefined }
  /** The answer to a call about children, or about another document. */
  | {
      readonly kind: 'answered'
      readonly call: number
      readonly value: Uint8Array
      readonly error: SentError | undefined
    }

export type FromThread =
  | { readonly kind: 'checkpoint'; readonly checkpoint: number; readonly set: Uint8Array }
  | {
      readonly kind: 'call'
      readonly call: number
      readonly method: 'children' | 'childrenDone' | 'childrenOf' | 'removeChildren' | 'waitFor'
      /** The call's arguments, first to last. */
      readonly given: Uint8Array
    }
  | {
      readonly kind: 'log'
      readonly level: 'debug' | 'info' | 'warn' | 'error'
      readonly message: string
      readonly fields: Uint8Array | undefined
      readonly errors: Readonly<Record<string, SentError>>
    }
