import type { MessagePort } from 'node:worker_threads'
import { BSON } from 'mongodb'
import { InvalidOutcome, type StepAborted, Unavailable } from '../errors/errors.js'
import { textOf, tried } from '../errors/kept-text.js'
import { withSet } from '../errors/storable.js'
import type { StepAnswer } from '../step/step.js'
import type { ThreadDeclaration } from './declaration.js'

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

export type StepResult =
  | { readonly kind: 'returned'; readonly value: unknown; readonly set: Uint8Array | undefined }
  | { readonly kind: 'threw'; readonly error: SentError }

export type ToThread =
  | { readonly kind: 'abort' }
  | {
      readonly kind: 'answered'
      readonly call: number
      readonly value: Uint8Array
      readonly error: SentError | undefined
    }

export type FromThread =
  | {
      readonly kind: 'call'
      readonly call: number
      readonly method: 'checkpoint' | 'children' | 'childrenDone' | 'childrenOf' | 'removeChildren' | 'waitFor'
      /** The call's arguments, first to last; of a checkpoint, its fields as `encodeSet` made them. */
      readonly given: Uint8Array
    }
  | {
      readonly kind: 'log'
      readonly level: 'debug' | 'info' | 'warn' | 'error'
      readonly message: string
      readonly fields: Uint8Array | undefined
      readonly errors: Readonly<Record<string, SentError>>
    }

/** Anything that was thrown, on its way between threads. */
export interface SentError {
  /** False: the value that was thrown is not an Error; its text is the message. */
  readonly isError: boolean
  readonly message: string
  readonly name?: string | undefined
  readonly stack?: string | undefined
  readonly code?: string | number | undefined
  readonly retryAfterMs?: number | undefined
  readonly cause?: SentError | undefined
  readonly errors?: readonly SentError[] | undefined
}

const MOST_CAUSES = 5

/** Packs anything that was thrown. Never throws: an error's properties may be getters written by its author. */
export function sentError(thrown: unknown, causes = 0): SentError {
  if (!(thrown instanceof Error)) return { isError: false, message: textOf(thrown) }
  const read = <T>(field: string, is: (value: unknown) => value is T): T | undefined => {
    const value = tried(() => (thrown as unknown as Record<string, unknown>)[field])
    return is(value) ? value : undefined
  }
  const cause = causes < MOST_CAUSES ? read('cause', isThere) : undefined
  const errors = causes < MOST_CAUSES ? read('errors', Array.isArray) : undefined
  return {
    isError: true,
    message: read('message', isText) ?? '',
    name: read('name', isText),
    stack: read('stack', isText),
    code: read('code', isCode),
    retryAfterMs: read('retryAfterMs', isNumber),
    cause: cause === undefined ? undefined : sentError(cause, causes + 1),
    // Without causes of their own: a tree would grow with each level.
    errors: errors?.slice(0, MOST_CAUSES).map((one) => sentError(one, MOST_CAUSES)),
  }
}

/**
 * Unpacks a thrown value as its counterpart here. Classes are recognized by their names: the module in the thread may have loaded Phaselock from
 * another file.
 */
export function receivedError({ isError, name, message, retryAfterMs, ...sent }: SentError): unknown {
  if (!isError) return message
  const options = sent.cause && { cause: receivedError(sent.cause) }
  const error =
    name === 'Unavailable'
      ? new Unavailable(message, { ...options, ...(retryAfterMs !== undefined && { retryAfter: `${retryAfterMs}ms` }) })
      : name === 'InvalidOutcome'
        ? new InvalidOutcome(message, options)
        : new Error(message, options)
  if (name && error.name !== name) Object.defineProperty(error, 'name', { value: name, configurable: true })
  if (sent.stack !== undefined) error.stack = sent.stack
  if (sent.errors) Object.assign(error, { errors: sent.errors.map(receivedError) })
  if (sent.code !== undefined) Object.assign(error, { code: sent.code })
  return error
}

const isText = (value: unknown): value is string => typeof value === 'string'
const isNumber = (value: unknown): value is number => typeof value === 'number' && value >= 0
const isCode = (value: unknown): value is string | number => isText(value) || typeof value === 'number'
const isThere = (value: unknown): value is unknown => value !== undefined && value !== null

type Fields = Record<string, unknown>
/**
 * Documents on their way between threads, as BSON: ids, dates, Long, Decimal128 and the like arrive as themselves. A structured clone makes plain
 * objects of them, and Extended JSON takes five times as long (3 KB there and back: 81 us against 380, measured).
 */
export const wire = {
  encode(fields: Fields): Uint8Array {
    // As the driver stores them: undefined becomes null.
    return BSON.serialize(fields, { ignoreUndefined: false })
  },

  /**
   * Encodes the owner's fields that a thread's handler stores. The engine checks them too, but they are checked here first, because values that can't
   * be stored can't be sent either.
   * @throws InvalidOutcome
   */
  encodeSet(set: unknown): Uint8Array {
    return withSet(set, (fields) => {
      const removed = Object.keys(fields).filter((name) => fields[name] === undefined)
      return wire.encode({ fields, removed })
    })
  },

  /** Decodes a document as the driver would have read it; a Long stays one. */
  document(bytes: Uint8Array): Fields {
    return BSON.deserialize(bytes, { promoteLongs: false })
  },

  /** Decodes fields to store, as `encodeSet` sent them: each with the very type that it would have been stored with in its own thread. */
  fields(bytes: Uint8Array): Fields {
    const { fields, removed } = plain(BSON.deserialize(bytes, { promoteValues: false })) as {
      fields: Fields
      removed: readonly string[]
    }
    return Object.fromEntries(
      Object.entries(fields).map(([name, value]) => [name, removed.includes(name) ? undefined : value]),
    )
  },
}

/** A value without the wrappers of numbers, except for a Double that would become an integer. */
function plain(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof BSON.Int32) return value.value
  if (value instanceof BSON.Double) {
    return Number.isInteger(value.value) && !Object.is(value.value, -0) && (value.value | 0) === value.value
      ? value
      : value.value
  }
  if (Array.isArray(value)) return value.map(plain)
  if (Object.getPrototypeOf(value) !== Object.prototype) return value
  // Not assigned: a field `__proto__` would become the object's prototype.
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plain(inner)]))
}
