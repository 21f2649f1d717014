import { DemoReplica } from './demo-replica.js'
import { slowness } from './judgement.js'
import type { DemoNews } from './replica-messages.js'

const LINES_EACH = 10

export interface FleetOptions<Config extends object> {
  /** The replicas' program. */
  readonly program: string
  /** The configuration they share, except for their names. */
  readonly config: Config
  /** Called with each of their messages. */
  readonly onNews?: (news: DemoNews) => void
}

/** All replicas of a run. However the demo ends, none of its processes outlives it: see also replica-life.ts. */
export class Fleet<Config extends object = object> {
  readonly replicas: DemoReplica[] = []
  private hasEnded = false

  constructor(private readonly options: FleetOptions<Config>) {}

  /** Starts a replica; resolves when it ticks. @throws ReplicaFailed */
  async start(name: string, more: Partial<Config> = {}): Promise<DemoReplica> {
    if (this.hasEnded) throw new Error('the demo has ended: no more replicas')
    const { program, config, onNews = () => undefined } = this.options
    const replica = new DemoReplica(name, program, { ...config, ...more }, onNews)
    this.replicas.push(replica)
    this.tellSiblings()
    await replica.ready()
    return replica
  }

  get living(): DemoReplica[] {
    return this.replicas.filter((replica) => replica.isAlive)
  }

  /** Why a replica could not continue. */
  failure(): string | undefined {
    return this.replicas.map(({ name, failure }) => failure && `replica ${name}: ${failure}`).find(Boolean)
  }

  /** How many times longer things take, here or in a replica, for lack of CPU. */
  slowness(): number {
    return slowness(Math.max(...this.replicas.map((replica) => replica.slowness)))
  }

  refusedLateWrites(of: (replica: DemoReplica) => boolean = () => true): number {
    return this.replicas.filter(of).reduce((sum, replica) => sum + replica.refusedLateWrites, 0)
  }

  /** For a report of what is off: what replicas lost besides late writes, and the first lines of their logs. */
  lastWords(): string[] {
    return this.replicas.flatMap(({ name, otherLosses, said }) => [
      ...[...otherLosses].map(([how, count]) => `replica ${name}: ${count} times lease lost (${how})`),
      ...said.slice(0, LINES_EACH).map((line) => `replica ${name}: ${line}`),
    ])
  }

  /** SIGTERM to all; resolves when they are gone. */
  async rest(): Promise<void> {
    for (const replica of this.living) replica.stop()
    await this.gone()
  }

  async end(): Promise<void> {
    this.hasEnded = true
    for (const replica of this.living) replica.kill()
    await this.gone()
  }

  private async gone(): Promise<void> {
    await Promise.all(this.replicas.map((replica) => replica.ended))
  }

  private tellSiblings(): void {
    const pids = this.living.flatMap(({ pid }) => (pid === undefined ? [] : [pid]))
    for (const replica of this.living) {
      replica.tell({ kind: 'siblings', pids: pids.filter((pid) => pid !== replica.pid) })
    }
  }
}
