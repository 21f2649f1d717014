import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Piscina } from 'piscina'
import { MissingPackage, requirePackages } from '../../config/index.js'
import { formatMs } from '../../time/index.js'
import { type Logger, silentLogger, sturdy } from '../reporting/logger.js'
import type { Step } from '../step/step.js'
import { described, type ThreadDeclaration } from './declaration.js'
import { ThreadCall } from './thread-call.js'

type Fields = Record<string, unknown>

export interface ThreadPoolOptions {
  /** The number of threads at most. Default: the cores that this process may use, less one; at least 1. */
  readonly size?: number | undefined
  /** The memory of one thread, in MB of its heap. Default: the amount that Node gives a thread. */
  readonly memoryMb?: number | undefined
  readonly logger?: Logger | undefined
  /** The time that a module may take to load when a replica starts. Default 60,000 ms. @internal */
  readonly loadWithinMs?: number | undefined
}

/** The progress that a call reports: that it waits for a thread (its step has not begun), and that it has got one. */
export interface CallProgress {
  waits(): void
  begins(): void
}

/** The time without a task after which a thread ends: an idle replica has no threads. */
const IDLE_MS = 30_000

/**
 * The worker threads of a process, started when the first step needs one. Steps beyond their number wait here, in order, and may still be called off.
 * The lifecycles' concurrency bounds their number.
 */
export class ThreadPool {
  readonly size: number
  private readonly logger: Logger
  /** Called when a thread ended without a step: a call whose thread can't even start would wait forever. */
  private readonly unbegun = new Set<(error: Error) => void>()
  private readonly waiting: (() => void)[] = []
  private free: number
  private pool: Promise<Piscina> | undefined
  private users = 0

  constructor(private readonly options: ThreadPoolOptions = {}) {
    // One of this process's cores is for the event loop.
    this.size = options.size ?? Math.max(1, availableParallelism() - 1)
    this.free = this.size
    this.logger = sturdy(options.logger ?? silentLogger)
  }

  /** Adds a replica that uses it; `leave` ends its threads, even busy ones, when the last one has left. */
  join(): void {
    this.users += 1
  }

  async leave(): Promise<void> {
    this.users -= 1
    if (this.users > 0) return
    const pool = await this.pool?.catch(() => undefined) // a failed start was reported by the step that needed it
    this.pool = undefined
    await pool?.destroy()
  }

  /**
   * Finds the problem of a declaration by loading its module in a thread; undefined: it has none.
   * @throws MissingPackage when there can't be threads
   */
  async problem(declaration: ThreadDeclaration): Promise<string | undefined> {
    const failed = new AbortController()
    const cantBegin = (error: Error) => failed.abort(error)
    this.unbegun.add(cantBegin)
    // A module that waits forever at its top level must not silently keep a replica from starting.
    const { loadWithinMs = 60_000 } = this.options
    const late = () => failed.abort(new Error(`it had not loaded after ${formatMs(loadWithinMs)}`))
    const timer = setTimeout(late, loadWithinMs)
    try {
      this.pool ??= this.start()
      const pool = await this.pool
      const problem: string | undefined = await pool.run(declaration, { name: 'check', signal: failed.signal })
      return problem === undefined ? undefined : `${described(declaration)}: ${problem}`
    } catch (error) {
      if (error instanceof MissingPackage) throw error
      const why = failed.signal.aborted ? failed.signal.reason : error
      return `${described(declaration)}: its thread ended while it loaded the module: ${String(why)}`
    } finally {
      clearTimeout(timer)
      this.unbegun.delete(cantBegin)
    }
  }

  /**
   * Runs a step in a thread, as soon as there is one.
   * @throws the handler's error, ThreadDied, StepAborted; also while it waits
   */
  async run(
    declaration: ThreadDeclaration,
    document: Fields,
    progressField: string,
    step: Step<string, Fields>,
    progress: CallProgress,
  ): Promise<unknown> {
    await this.place(step.signal, progress)
    try {
      step.signal.throwIfAborted()
      this.pool ??= this.start()
      const pool = await this.pool
      const call = new ThreadCall(declaration, step)
      const cantBegin = (error: Error) => call.cantBegin(error)
      this.unbegun.add(cantBegin)
      try {
        return await call.run(pool, document, progressField)
      } finally {
        this.unbegun.delete(cantBegin)
      }
    } finally {
      const next = this.waiting.shift()
      if (next) next()
      else this.free += 1
    }
  }

  private async place(signal: AbortSignal, progress: CallProgress): Promise<void> {
    signal.throwIfAborted()
    if (this.free > 0) {
      this.free -= 1
      return
    }
    progress.waits()
    await new Promise<void>((resolve, reject) => {
      const begin = () => {
        signal.removeEventListener('abort', callOff)
        resolve()
      }
      const callOff = () => {
        this.waiting.splice(this.waiting.indexOf(begin), 1)
        reject(signal.reason)
      }
      signal.addEventListener('abort', callOff, { once: true })
      this.waiting.push(begin)
    })
    progress.begins()
  }

  private async start(): Promise<Piscina> {
    requirePackages('a handler in a thread', ['piscina'])
    const { Piscina } = await import('piscina')
    const { memoryMb } = this.options
    const pool = new Piscina({
      filename: workerProgram(),
      name: 'step',
      minThreads: 0,
      maxThreads: this.size,
      idleTimeout: IDLE_MS,
      // Between two steps a thread's own event loop goes on, so that connections of its module stay alive. With a port per step that is also the
      // quickest (67 us a step there and back, 102 with 'sync', measured).
      atomics: 'disabled',
      ...(memoryMb === undefined ? {} : { resourceLimits: { maxOldGenerationSizeMb: memoryMb } }),
    })
    pool.on('error', (error: Error) => {
      this.logger.error(`a worker thread ended outside a step: ${error.message}`, { error })
      for (const tell of this.unbegun) tell(error)
    })
    return pool
  }
}

/** The path of the thread's program. It is plain JavaScript: a run from the TypeScript sources (the tests) uses the built one. */
function workerProgram(): string {
  const here = fileURLToPath(new URL('.', import.meta.url))
  const folder = import.meta.url.endsWith('.ts') ? resolve(here, '../../../dist/phases/threads') : here
  const path = resolve(folder, 'worker.js')
  if (!existsSync(path)) throw new Error(`expected the built program ${path}, but it is missing; run \`npm run build\``)
  return path
}
