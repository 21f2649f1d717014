/** The program of a worker thread: piscina calls its exports for each task. */
import type { MessagePort } from 'node:worker_threads'
import { withFormerFields } from '../../options/index.js'
import { processMs } from '../../time/index.js'
import { InvalidOutcome, StepAborted } from '../errors/errors.js'
import { textOf } from '../errors/kept-text.js'
import { isMadeBy, Outcomes, type OwnFields, type Reached } from '../outcome/outcome.js'
import { type Logger, loggerOf } from '../reporting/logger.js'
import type { ChildrenDone } from '../step/children.js'
import type { Progress, Step, StepAnswer } from '../step/step.js'
import type { ThreadDeclaration } from './declaration.js'
import {
  Cell,
  type FromThread,
  receivedError,
  type SentError,
  type StepResult,
  type StepTask,
  sentError,
  type ToThread,
  wire,
} from './messages.js'

/** The step that runs now, to log rejections that no code awaits. */
let current: ThreadStep | undefined

process.on('unhandledRejection', (error) => {
  current?.log.error('a promise was rejected in a thread and nothing handled it: a handler does not await it', {
    error,
  })
})

/** Loads a module; returns why it lacks the declared function, or undefined if it has it. */
export async function check(declaration: ThreadDeclaration): Promise<string | undefined> {
  try {
    await handlerOf(declaration)
    return undefined
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

export async function step(task: StepTask): Promise<StepResult> {
  try {
    new Cell(task.cell).begins()
    const handler = await handlerOf(task.declaration)
    const document = wire.document(task.document)
    current = new ThreadStep(task, document)
    return returned(await handler(document, current), task)
  } catch (error) {
    return { kind: 'threw', error: sentError(error) }
  } finally {
    current = undefined
    // The replica closes the port; nothing more is heard on it here.
    task.port.removeAllListeners('message')
    task.port.unref()
  }
}

async function handlerOf({ module, export: name }: ThreadDeclaration): Promise<(...args: unknown[]) => unknown> {
  const loaded: Record<string, unknown> = await import(module)
  // A CommonJS module's exports may all be on its default.
  const found = loaded[name] ?? (loaded['default'] as Record<string, unknown> | undefined)?.[name]
  if (typeof found === 'function') return found as never
  const names = Object.keys(loaded).filter((key) => typeof loaded[key] === 'function')
  const which = name === 'default' ? 'a default export' : `an export '${name}'`
  const has = names.length > 0 ? `functions that it exports: ${names.join(', ')}` : 'it exports no functions'
  throw new TypeError(
    `${module}: expected ${which} that is a function, got ${found === undefined ? 'none' : typeof found}; ${has}`,
  )
}

/** Splits the outcome into its parts: a value that can't be sent is refused here, where it can be named. */
function returned(value: unknown, task: StepTask): StepResult {
  if (typeof value !== 'object' || value === null) return { kind: 'returned', value: primitive(value), set: undefined }
  if (!isMadeBy(task, value)) throw new InvalidOutcome('the handler returned an outcome of another step')
  const { set, ...outcome } = value as Record<string, unknown>
  const parts = Object.fromEntries(Object.entries(outcome).map(([name, part]) => [name, primitive(part)]))
  return { kind: 'returned', value: parts, set: set === undefined ? undefined : wire.encodeSet(set) }
}

const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every((one) => typeof one === 'string')

/** Strings, numbers and lists of strings as they are; for anything else, the engine's text for an unexpected value. */
function primitive(value: unknown): unknown {
  if (isTexts(value)) return value // a question's options
  if (typeof value === 'function' || typeof value === 'symbol') return String(value)
  return typeof value === 'object' && value !== null ? textOf(value) : value
}

type AnyDoc = Record<string, unknown>
type AnyStep = Step<string, AnyDoc>
type CallOfStep = Extract<FromThread, { kind: 'call' }>

/** The step as a handler in a thread sees it: the same as elsewhere, over the step's port. */
export class ThreadStep extends Outcomes implements AnyStep {
  readonly name: string | undefined
  readonly fence: number
  readonly attempt: number
  readonly waitedMs: number
  readonly answer: StepAnswer | undefined
  readonly progress: Progress
  readonly log: Logger = loggerOf((level, message, fields) => this.logged(level, message, fields))
  private readonly port: MessagePort
  private readonly cell: Cell
  private readonly controller = new AbortController()
  private readonly calls = new Map<number, PromiseWithResolvers<unknown>>()
  private lastCall = 0

  constructor(task: StepTask, document: AnyDoc) {
    super(task)
    this.name = task.name
    this.fence = task.fence
    this.attempt = task.attempt
    this.waitedMs = task.waitedMs
    this.answer = task.answer && withFormerFields('step.answer', task.answer, { comment: 'reason' })
    this.progress = (document[task.progressField] ?? {}) as Progress
    this.cell = new Cell(task.cell)
    this.port = task.port
    this.port.on('message', (message: ToThread) => this.received(message))
  }

  /**
   * The signal, also for a handler that computes without a pause. `step.signal.aborted` reads memory that the replica writes, because the event
   * 'abort' comes only when the handler waits for something.
   */
  get signal(): AbortSignal {
    this.lookAtCell()
    return this.controller.signal
  }

  leaseLeftMs(): number {
    return Math.max(0, this.cell.leaseUntilMs - processMs())
  }

  // The replica does all these, and what they throw arrives here.
  async checkpoint(set: OwnFields<AnyDoc>): Promise<void> {
    await this.send('checkpoint', wire.encodeSet(set))
  }
  readonly children: AnyStep['children'] = async (...given) => void (await this.call('children', given))
  readonly childrenOf: AnyStep['childrenOf'] = async ({ name }) => (await this.call('childrenOf', [{ name }])) as never
  readonly removeChildren: AnyStep['removeChildren'] = async (...given) =>
    (await this.call('removeChildren', given)) as never

  async childrenDone(...given: Parameters<AnyStep['childrenDone']>) {
    const done = (await this.call('childrenDone', given)) as ChildrenDone
    return withFormerFields('childrenDone', done, { decided: 'done' })
  }

  async waitFor(...given: Parameters<AnyStep['waitFor']>) {
    const there = (await this.call('waitFor', given)) as Reached
    return withFormerFields('waitFor', { ...there, phase: there.phase ?? undefined }, { reached: 'done' })
  }

  private call(method: CallOfStep['method'], given: readonly unknown[]): Promise<unknown> {
    return this.send(method, wire.encode({ given }))
  }

  private send(method: CallOfStep['method'], given: Uint8Array): Promise<unknown> {
    this.lastCall += 1
    const answer = Promise.withResolvers<unknown>()
    this.calls.set(this.lastCall, answer)
    this.tell({ kind: 'call', call: this.lastCall, method, given })
    return answer.promise
  }

  private received(message: ToThread): void {
    if (message.kind === 'abort') {
      this.lookAtCell()
      return
    }
    const { call, value, error } = message
    const answer = this.calls.get(call)
    this.calls.delete(call)
    if (error) answer?.reject(receivedError(error))
    else answer?.resolve(wire.document(value)['value'])
  }

  private lookAtCell(): void {
    const { why } = this.cell
    if (why !== undefined && !this.controller.signal.aborted) this.controller.abort(new StepAborted(why))
  }

  private logged(level: keyof Logger, message: string, fields?: object): void {
    const errors: Record<string, SentError> = {}
    const others: AnyDoc = {}
    for (const [name, value] of Object.entries(fields ?? {})) {
      if (value instanceof Error) errors[name] = sentError(value)
      else others[name] = value
    }
    this.tell({ kind: 'log', level, message: String(message), fields: this.loggable(others), errors })
  }

  /** The fields that can be sent: a log line must do no harm, so others are left out. */
  private loggable(fields: AnyDoc): Uint8Array | undefined {
    try {
      return Object.keys(fields).length > 0 ? wire.encode(fields) : undefined
    } catch {
      return undefined
    }
  }

  private tell(message: FromThread): void {
    this.port.postMessage(message)
  }
}
