import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { FromReplica, ReplicaConfig, ToReplica } from './replica-messages.js'

const PROGRAM = fileURLToPath(new URL('./replica-process.js', import.meta.url))

/** Thrown when a replica's process ends or fails where it shouldn't. */
export class ReplicaFailed extends Error {
  override readonly name = 'ReplicaFailed'
  constructor(
    readonly replica: string,
    readonly said: string,
  ) {
    super(`replica ${replica} failed: ${said}`)
  }
}

/** The demo's end of one replica's process. */
export class ReplicaLink {
  /** Outcomes of this replica that came late and changed nothing. */
  refusedLateWrites = 0
  /** What else it lost, by how: see LeaseLoss. */
  readonly otherLosses = new Map<string, number>()
  /** Warnings and errors of its log, the first hundred. */
  readonly said: string[] = []
  readonly exited: Promise<number | null>
  failure: string | undefined
  private paused = false
  private identityNow: string | undefined
  private readonly started: Promise<void>

  private constructor(
    readonly name: string,
    private readonly child: ChildProcess,
  ) {
    this.exited = new Promise((resolve) => child.once('exit', (code) => resolve(code)))
    this.started = new Promise((resolve, reject) => {
      child.on('message', (message: FromReplica) => {
        this.heard(message)
        if (message.kind === 'started') resolve()
        if (message.kind === 'failed') reject(new ReplicaFailed(name, message.message))
      })
      child.once('error', (error) => reject(new ReplicaFailed(name, error.message)))
      child.once('exit', (code, signal) => reject(new ReplicaFailed(name, `it ended early (${signal ?? code})`)))
    })
    this.started.catch(() => undefined)
  }

  static launch(config: ReplicaConfig): ReplicaLink {
    const child = fork(PROGRAM, [], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'], execArgv: [] })
    const link = new ReplicaLink(config.name, child)
    link.tell({ kind: 'configure', config })
    return link
  }

  /** Resolves when it ticks. @throws ReplicaFailed */
  ready(): Promise<void> {
    return this.started
  }

  get pid(): number | undefined {
    return this.child.pid
  }

  /** Who it is in `lockedBy`. */
  get identity(): string {
    if (!this.identityNow) throw new ReplicaFailed(this.name, 'it has not started')
    return this.identityNow
  }

  /** It ticks, or did. */
  get hasStarted(): boolean {
    return this.identityNow !== undefined
  }

  get isAlive(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null
  }

  kill(): void {
    this.child.kill('SIGKILL')
  }
  terminate(): void {
    this.child.kill('SIGTERM')
  }
  pause(): void {
    this.paused = true
    this.child.kill('SIGSTOP')
  }
  continue(): void {
    this.paused = false
    this.child.kill('SIGCONT')
  }

  tell(message: ToReplica): void {
    // A paused process would only fill its channel.
    if (this.isAlive && !this.paused) this.child.send(message, () => undefined)
  }

  private heard(message: FromReplica): void {
    if (message.kind === 'started') this.identityNow = message.identity
    else if (message.kind === 'failed') this.failure = message.message
    else if (message.kind === 'log') {
      if (this.said.length < 100) this.said.push(`${message.level}: ${message.message}`)
    } else if (message.how === 'refused') this.refusedLateWrites += 1
    else this.otherLosses.set(message.how, 1 + (this.otherLosses.get(message.how) ?? 0))
  }
}
