import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { ReplicaFailed } from '../replica-link.js'
import type { FromKubernetesReplica, KubernetesReplicaConfig } from './messages.js'

const PROGRAM = fileURLToPath(new URL('./replica-process.js', import.meta.url))
const LINES_EACH = 10

/** One replica, in a process of its own. */
export interface Member {
  readonly name: string
  /** Who it is in `lockedBy`. */
  readonly identity: string
}

interface Employed extends Member {
  readonly child: ChildProcess
  readonly said: string[]
}

/** The replicas of the demo. However it ends, none of its processes outlives it: see also replica-process.ts. */
export class Crew {
  private readonly employed = new Map<string, Employed>()
  private readonly said: string[] = []
  private failureNow: string | undefined
  private readonly onExit = () => this.killAll()

  constructor(
    private readonly config: Omit<KubernetesReplicaConfig, 'name' | 'watches'>,
    /** Told of each domain that has come to Created. */
    private readonly created: (id: string) => void,
  ) {
    process.on('exit', this.onExit)
  }

  /** Starts a replica; resolves when it ticks. @throws ReplicaFailed */
  async start(name: string, { watches = true } = {}): Promise<Member> {
    const child = fork(PROGRAM, [], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'], execArgv: [] })
    const said: string[] = []
    const started = new Promise<string>((resolve, reject) => {
      child.on('message', (message: FromKubernetesReplica) => {
        if (message.kind === 'started') resolve(message.identity)
        else if (message.kind === 'created') this.created(message.id)
        else if (message.kind === 'log') {
          if (said.length < LINES_EACH) said.push(`replica ${name}: ${message.level}: ${message.message}`)
        } else {
          this.failureNow ??= `replica ${name}: ${message.message}`
          reject(new ReplicaFailed(name, message.message))
        }
      })
      child.once('error', (error) => reject(new ReplicaFailed(name, error.message)))
      child.once('exit', (code, signal) => {
        if (this.employed.get(name)?.child === child) this.failureNow ??= `replica ${name} ended (${signal ?? code})`
        reject(new ReplicaFailed(name, `it ended early (${signal ?? code})`))
      })
    })
    const config: KubernetesReplicaConfig = { ...this.config, name, watches }
    child.send(config, () => undefined)
    const onTheWay = { name, identity: '', child, said }
    this.employed.set(name, onTheWay)
    const member = { ...onTheWay, identity: await started }
    this.employed.set(name, member)
    return member
  }

  /** SIGSTOP: it stands still, and holds what it holds. */
  pause(name: string): void {
    this.employed.get(name)?.child.kill('SIGSTOP')
  }

  resume(name: string): void {
    this.employed.get(name)?.child.kill('SIGCONT')
  }

  /** `kill -9`, which ends a paused one too. */
  async kill(name: string): Promise<void> {
    await this.dismiss(name, 'SIGKILL')
  }

  /** SIGTERM, to all; resolves when they are gone. */
  async rest(): Promise<void> {
    await Promise.all([...this.employed.keys()].map((name) => this.dismiss(name, 'SIGTERM')))
  }

  /** What one of them reported that it could not go on with. */
  failure(): string | undefined {
    return this.failureNow
  }

  /** The first warnings and errors of each. */
  lastWords(): string[] {
    return [...this.said, ...[...this.employed.values()].flatMap(({ said }) => said)]
  }

  async end(): Promise<void> {
    await Promise.all([...this.employed.keys()].map((name) => this.dismiss(name, 'SIGKILL')))
    process.off('exit', this.onExit)
  }

  private async dismiss(name: string, signal: NodeJS.Signals): Promise<void> {
    const one = this.employed.get(name)
    if (!one) return
    this.employed.delete(name)
    this.said.push(...one.said)
    const { child } = one
    if (child.exitCode !== null || child.signalCode !== null) return
    const exited = new Promise((resolve) => child.once('exit', resolve))
    child.kill(signal)
    await exited
  }

  private killAll(): void {
    for (const { child } of this.employed.values()) child.kill('SIGKILL')
  }
}
