import { type ChildProcess, fork } from 'node:child_process'
import type { Readable } from 'node:stream'

export interface ProcessEnd {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** The reason why it could not start or continue, if it reported one. */
  readonly failure: Failed | undefined
}

/** A report that it can't start or continue. */
export interface Failed {
  readonly kind: 'failed'
  readonly name: string
  readonly message: string
  readonly exitCode: number
}

/** The messages of every replica's process over its channel; each kind of replica adds more. `identity` is the same as in `lockedBy`. */
export type Said = { readonly kind: 'ready'; readonly identity: string } | Failed

export interface Launch {
  readonly args?: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  readonly execArgv?: readonly string[]
  /** Its standard output: ours, read by us, or discarded. Its standard error is ours. Default 'inherit'. */
  readonly output?: 'inherit' | 'pipe' | 'ignore'
  /** If true, it is killed when this process exits; otherwise it ends on its own when its channel is closed. Default false. */
  readonly diesWithUs?: boolean
}

/** Thrown when a replica's process ends or fails unexpectedly. */
export class ReplicaFailed extends Error {
  override readonly name = 'ReplicaFailed'
  constructor(replica: string, said: string) {
    super(`replica ${replica} failed: ${said}`)
  }
}

/**
 * A replica in its own process, seen from the process that started it: its messages, its end, and the signals that it gets. A restart
 * creates a new one.
 * @typeParam More the messages of its kind of replica, besides {@link Said}
 * @typeParam Order the messages that it is sent
 */
export class ReplicaProcess<More extends object = never, Order extends object = object> {
  /** Resolves when it works, can't work, or has ended. */
  readonly settled: Promise<void>
  readonly ended: Promise<ProcessEnd>
  /** Its identity in `lockedBy`; undefined while it isn't working. */
  identity: string | undefined
  private failed: Failed | undefined
  private isPaused = false
  private readonly child: ChildProcess
  private readonly killAtExit = () => void this.child.kill('SIGKILL')

  /** @param program a JavaScript file, or a TypeScript file that Node runs directly */
  constructor(program: string, { args = [], env, execArgv = [], output = 'inherit', diesWithUs = false }: Launch = {}) {
    const child = fork(program, args, {
      stdio: ['ignore', output, 'inherit', 'ipc'],
      ...(env && { env }),
      execArgv: [...execArgv],
      serialization: 'advanced', // metrics hold NaN for values that were not measured yet
    })
    this.child = child
    const said = Promise.withResolvers<void>()
    child.on('message', (message: Said | More) => {
      const known = message as Said
      if (known.kind === 'ready') this.identity = known.identity
      if (known.kind === 'failed') this.failed = known
      if (known.kind === 'ready' || known.kind === 'failed') said.resolve()
      this.received(message)
    })
    this.ended = new Promise((done) => {
      const end = (code: number | null, signal: NodeJS.Signals | null) => {
        this.identity = undefined
        process.off('exit', this.killAtExit)
        done({ code, signal, failure: this.failed })
      }
      child.once('exit', end)
      child.on('error', ({ name, message }) => {
        this.failed ??= { kind: 'failed', name, message, exitCode: 1 }
        if (child.pid === undefined) end(null, null) // it never started
      })
    })
    this.settled = Promise.race([said.promise, this.ended.then(() => undefined)])
    if (diesWithUs) process.on('exit', this.killAtExit)
  }

  get pid(): number | undefined {
    return this.child.pid
  }
  get isAlive(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null && this.pid !== undefined
  }
  /** The reason why it could not start or continue. */
  get failure(): string | undefined {
    return this.failed?.message
  }
  /** Its standard output, with `output: 'pipe'`. */
  get output(): Readable | null {
    return this.child.stdout
  }

  tell(order: Order): void {
    // Messages would only fill a paused process's channel.
    if (this.child.connected && !this.isPaused) this.child.send(order, () => undefined)
  }

  /** SIGTERM: an orderly stop. */
  stop(): void {
    this.child.kill('SIGTERM')
  }
  /** SIGKILL, which also ends a paused process. */
  kill(): void {
    this.child.kill('SIGKILL')
  }
  /** SIGSTOP: it freezes, and keeps its leases. */
  pause(): void {
    this.isPaused = true
    this.child.kill('SIGSTOP')
  }
  /** SIGCONT. */
  resume(): void {
    this.isPaused = false
    this.child.kill('SIGCONT')
  }

  /** Called with each of its messages. */
  protected received(_said: Said | More): void {}
}

/** The end of a process, for people. */
export const described = ({ code, signal }: ProcessEnd): string => (signal ? `signal ${signal}` : `exit code ${code}`)
