import { type ChildProcess, fork } from 'node:child_process'
import type { Readable } from 'node:stream'

/** How a replica's process came to its end. */
export interface ProcessEnd {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** Why it could not start or go on, if it said so. */
  readonly failure: Failed | undefined
}

export interface Ready {
  readonly kind: 'ready'
  /** Who it is in `lockedBy`. */
  readonly identity: string
}

/** It can't start, or go on. */
export interface Failed {
  readonly kind: 'failed'
  readonly name: string
  readonly message: string
  readonly exitCode: number
}

/** What every replica's process says over its channel; each kind of replica says more. */
export type Said = Ready | Failed

export interface Launch {
  readonly args?: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  readonly execArgv?: readonly string[]
  /** Its standard output: ours, read by us, or nobody's. Its errors are ours. Default 'inherit'. */
  readonly output?: 'inherit' | 'pipe' | 'ignore'
  /** Whether it is killed when this process exits; if not, it ends by itself when it sees its channel closed. Default false. */
  readonly diesWithUs?: boolean
}

/** Thrown when a replica's process ends or fails where it shouldn't. */
export class ReplicaFailed extends Error {
  override readonly name = 'ReplicaFailed'
  constructor(replica: string, said: string) {
    super(`replica ${replica} failed: ${said}`)
  }
}

/**
 * A replica in a process of its own, seen from the process that has started it: what it says, how it ends, and the signals that
 * it gets. A restart makes another one.
 * @typeParam More what its kind of replica says beside {@link Said}
 * @typeParam Order what it is told
 */
export class ReplicaProcess<More extends object = never, Order extends object = object> {
  /** Resolves when it works, can't, or has ended. */
  readonly settled: Promise<void>
  readonly ended: Promise<ProcessEnd>
  /** Who it is in `lockedBy`; undefined: it doesn't work (yet, or any more). */
  identity: string | undefined
  private failed: Failed | undefined
  private isPaused = false
  private readonly child: ChildProcess
  private readonly killAtExit = () => void this.child.kill('SIGKILL')

  /** @param program a file of JavaScript, or of TypeScript that Node runs as it is */
  constructor(program: string, { args = [], env, execArgv = [], output = 'inherit', diesWithUs = false }: Launch = {}) {
    const child = fork(program, args, {
      stdio: ['ignore', output, 'inherit', 'ipc'],
      ...(env && { env }),
      execArgv: [...execArgv],
      serialization: 'advanced', // metrics hold NaN where nothing was measured yet
    })
    this.child = child
    const said = Promise.withResolvers<void>()
    child.on('message', (message: Said | More) => {
      const { kind } = message as Said
      if (kind === 'ready') this.identity = (message as Ready).identity
      if (kind === 'failed') this.failed = message as Failed
      if (kind === 'ready' || kind === 'failed') said.resolve()
      this.heard(message)
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
        if (child.pid === undefined) end(null, null) // it was never there
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
  /** What it could not go on with. */
  get failure(): string | undefined {
    return this.failed?.message
  }
  /** With `output: 'pipe'`. */
  get output(): Readable | null {
    return this.child.stdout
  }

  tell(order: Order): void {
    // A paused process would only fill its channel.
    if (this.child.connected && !this.isPaused) this.child.send(order, () => undefined)
  }

  /** SIGTERM: it stops in order. */
  stop(): void {
    this.child.kill('SIGTERM')
  }
  /** SIGKILL, which ends a paused process too. */
  kill(): void {
    this.child.kill('SIGKILL')
  }
  /** SIGSTOP: it stands still, and holds what it holds. */
  pause(): void {
    this.isPaused = true
    this.child.kill('SIGSTOP')
  }
  /** SIGCONT. */
  resume(): void {
    this.isPaused = false
    this.child.kill('SIGCONT')
  }

  /** Told of all that it says. */
  protected heard(_said: Said | More): void {}
}

/** How it ended, for people. */
export const described = ({ code, signal }: ProcessEnd): string => (signal ? `signal ${signal}` : `exit code ${code}`)
