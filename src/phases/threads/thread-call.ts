import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads'
import { processMs } from '../../time/index.js'
import { LeaseLost, type StepAborted } from '../errors/errors.js'
import type { Step } from '../step/step.js'
import { described, type ThreadDeclaration } from './declaration.js'
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

type Fields = Record<string, unknown>

/** The interval after which a thread is given its lease's end again; in between it assumes less than the truth. */
const TELL_LEASE_MS = 250

/** The thread of a step ended before its handler did: it exited, ran out of memory, or something in it threw unseen. */
export class ThreadDied extends Error {
  override readonly name = 'ThreadDied'
  constructor(what: string, cause: Error) {
    const { code, message } = cause as NodeJS.ErrnoException
    const why =
      code === 'ERR_WORKER_OUT_OF_MEMORY'
        ? 'it ran out of memory: do less at once, or give threads more memory (threadMemoryMb, PHASELOCK_THREAD_MEMORY)'
        : `${message}; a handler ends by returning an outcome; process.exit only ends its thread`
    super(`the thread of ${what} ended: ${why}`, { cause })
  }
}

/** The part of a pool that a call needs. Its own type: apps compile these declarations without piscina's. */
interface Threads {
  run(task: StepTask, options: { signal: AbortSignal; transferList: readonly [StepTask['port']] }): Promise<StepResult>
}

/** One step in a thread, seen from the replica: sends it news, does what it asks for, and waits for its end. */
export class ThreadCall {
  private readonly channel = new MessageChannel()
  private readonly cell = new Cell()
  private readonly ending = new AbortController()
  private readonly gone: Promise<void>
  private lost: LeaseLost | undefined
  private closed = false
  private leaseTimer: NodeJS.Timeout | undefined
  private endTimer: NodeJS.Timeout | undefined

  constructor(
    private readonly declaration: ThreadDeclaration,
    private readonly step: Step<string, Fields>,
  ) {
    const { port1 } = this.channel
    this.gone = new Promise((resolve) =>
      port1.once('close', () => {
        this.closed = true
        resolve()
      }),
    )
    port1.on('message', (message: FromThread) => this.received(message))
  }

  /**
   * Runs the handler and returns its outcome.
   * @throws the handler's error, ThreadDied, or StepAborted when its thread had to be ended
   */
  async run(pool: Threads, document: Fields, progressField: string): Promise<unknown> {
    const { signal } = this.step
    const aborted = () => this.aborted(signal.reason)
    signal.addEventListener('abort', aborted, { once: true })
    if (signal.aborted) aborted()
    this.tellLease()
    let result: StepResult
    try {
      const { declaration, cell } = this
      const { name, fence, attempt, waitedMs, answer } = this.step
      const task: StepTask = {
        ...{ declaration, document: wire.encode(document), progressField, name, fence, attempt, waitedMs, answer },
        ...{ cell: cell.buffer, port: this.channel.port2 },
      }
      result = await pool.run(task, { signal: this.ending.signal, transferList: [task.port] })
      this.hearTheRest()
    } catch (error) {
      // Its thread may still be in native code, and its document isn't free before the thread has ended: then the other end of the channel closes. A
      // port that no thread has received is closed here; closing one that was sent does nothing.
      this.channel.port2.close()
      await this.gone
      if (this.ending.signal.aborted) throw this.ending.signal.reason
      throw new ThreadDied(described(this.declaration), error as Error)
    } finally {
      signal.removeEventListener('abort', aborted)
      clearTimeout(this.leaseTimer)
      clearTimeout(this.endTimer)
      this.channel.port1.close()
    }
    return this.outcomeOf(result)
  }

  /** Ends the call because its thread can't begin: nothing has run. */
  cantBegin(error: Error): void {
    if (!this.cell.hasBegun) this.ending.abort(new ThreadDied(described(this.declaration), error))
  }

  /** Sends a message first: a handler that watches its signal ends by itself. Then its thread is ended, even if it is busy. */
  private aborted(reason: StepAborted): void {
    this.cell.why = reason.why
    this.tell({ kind: 'abort' })
    this.endTimer ??= setTimeout(() => this.ending.abort(reason), this.declaration.terminateAfterMs)
  }

  private tellLease(): void {
    this.cell.leaseUntilMs = processMs() + this.step.leaseLeftMs()
    this.leaseTimer = setTimeout(() => this.tellLease(), TELL_LEASE_MS).unref()
  }

  private outcomeOf(result: StepResult): unknown {
    if (result.kind === 'returned') {
      if (result.set === undefined) return result.value
      return { ...(result.value as object), set: wire.fields(result.set) }
    }
    const error = receivedError(result.error)
    throw this.lost && error instanceof Error && error.name === 'LeaseLost' ? this.lost : error
  }

  /** Reads the messages that the thread sent before it ended its step: a checkpoint that its handler didn't wait for counts. */
  private hearTheRest(): void {
    const { port1 } = this.channel
    if (this.closed) return // Node's receiveMessageOnPort crashes the process on a port that has closed
    for (let entry = receiveMessageOnPort(port1); entry; entry = receiveMessageOnPort(port1))
      this.received(entry.message)
  }

  private received(message: FromThread): void {
    if (message.kind === 'log') this.logged(message)
    else void this.called(message)
  }

  private async called({ call, method, given }: Extract<FromThread, { kind: 'call' }>): Promise<void> {
    const answer = (value: unknown, error?: SentError) =>
      this.tell({ kind: 'answered', call, value: wire.encode({ value }), error })
    try {
      const all = method === 'checkpoint' ? [wire.fields(given)] : wire.document(given)['given']
      const [first, second] = all as [never, never]
      answer(await this.step[method](first, second))
    } catch (error) {
      if (error instanceof LeaseLost) this.lost = error
      answer(null, sentError(error))
    }
  }

  private logged({ level, message, fields, errors }: Extract<FromThread, { kind: 'log' }>): void {
    const received = Object.entries(errors).map(([name, error]) => [name, receivedError(error)])
    const all = { thread: true, ...(fields && wire.document(fields)), ...Object.fromEntries(received) }
    this.step.log[level](message, all)
  }

  private tell(message: ToThread): void {
    this.channel.port1.postMessage(message)
  }
}
