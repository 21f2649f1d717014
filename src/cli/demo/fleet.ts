import { ReplicaLink } from './replica-link.js'
import type { ReplicaConfig } from './replica-messages.js'

const LINES_EACH = 10

/** All replicas of a run. However the demo ends, none of its processes outlives it: see also replica-process.ts. */
export class Fleet {
  readonly replicas: ReplicaLink[] = []
  private ended = false
  private readonly onExit = () => this.killAll()

  constructor(private readonly config: Omit<ReplicaConfig, 'name' | 'clockAheadMs'>) {
    process.on('exit', this.onExit)
  }

  /** Starts a replica; resolves when it ticks. */
  async start(name: string, more: { readonly clockAheadMs?: number } = {}): Promise<ReplicaLink> {
    if (this.ended) throw new Error('the demo has ended: no more replicas')
    const replica = ReplicaLink.launch({ ...this.config, name, clockAheadMs: 0, ...more })
    this.replicas.push(replica)
    this.tellSiblings()
    await replica.ready()
    return replica
  }

  get living(): ReplicaLink[] {
    return this.replicas.filter((replica) => replica.isAlive)
  }

  /** What a replica reported that it could not go on with. */
  failure(): string | undefined {
    return this.replicas.map(({ name, failure }) => failure && `replica ${name}: ${failure}`).find(Boolean)
  }

  /** For a report of what is off: what replicas lost beside late writes, and the first lines of their logs. */
  lastWords(): string[] {
    return this.replicas.flatMap(({ name, otherLosses, said }) => [
      ...[...otherLosses].map(([how, count]) => `replica ${name}: ${count} times lease lost (${how})`),
      ...said.slice(0, LINES_EACH).map((line) => `replica ${name}: ${line}`),
    ])
  }

  /** SIGKILL, which ends a paused process too. */
  killAll(): void {
    for (const replica of this.living) replica.kill()
  }

  async end(): Promise<void> {
    this.ended = true
    this.killAll()
    await Promise.all(this.replicas.map((replica) => replica.exited))
    process.off('exit', this.onExit)
  }

  private tellSiblings(): void {
    const pids = this.living.flatMap(({ pid }) => (pid === undefined ? [] : [pid]))
    for (const replica of this.living) {
      replica.tell({ kind: 'siblings', pids: pids.filter((pid) => pid !== replica.pid) })
    }
  }
}
