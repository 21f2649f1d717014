import { described, ReplicaFailed, ReplicaProcess } from '../../dist/cli/processes/replica-process.js'
import { numbered } from '../../dist/options/index.js'
import { slowness } from './judgement.ts'
import type { DemoNews, ToReplica } from './replica-life.ts'

const LINES = 100
const LINES_EACH = 10

/** A replica of a demo, and its reports so far. It is killed when the demo exits. */
export class DemoReplica extends ReplicaProcess<DemoNews, ToReplica> {
  /** Outcomes of this replica that came late and changed nothing. */
  refusedLateWrites = 0
  /** Its other losses of leases, counted by kind: see LeaseLoss. */
  readonly otherLosses = new Map<string, number>()
  /** Warnings and errors of its log, the first hundred. */
  readonly said: string[] = []
  /** The factor by which things take longer there for lack of CPU. */
  slowness = 1
  /** True once it was asked to end, so that its end is no failure. */
  isDismissed = false
  readonly name: string
  private endedEarly: string | undefined
  private readonly onNews: (news: DemoNews) => void

  constructor(name: string, program: string, config: object, onNews: (news: DemoNews) => void) {
    super(program, { output: 'ignore', diesWithUs: true })
    this.name = name
    this.onNews = onNews
    this.tell({ kind: 'configure', config: { ...config, name } })
    void this.ended.then((end) => {
      if (!this.isDismissed) this.endedEarly = `it ended by itself with ${described(end)}`
    })
  }

  /** Resolves when it ticks. @throws ReplicaFailed */
  async ready(): Promise<void> {
    await this.settled
    if (this.identity === undefined) throw new ReplicaFailed(this.name, this.failure ?? 'it was ended')
  }

  /** The reason why it could not continue, or how it ended without being asked to. */
  override get failure(): string | undefined {
    return super.failure ?? this.endedEarly
  }

  override stop(): void {
    this.isDismissed = true
    super.stop()
  }
  override kill(): void {
    this.isDismissed = true
    super.kill()
  }

  protected override received(news: DemoNews): void {
    if (news.kind === 'log' && this.said.length < LINES) this.said.push(`${news.level}: ${news.message}`)
    if (news.kind === 'slowness') this.slowness = news.times
    if (news.kind === 'leaseLost') {
      if (news.how === 'refused') this.refusedLateWrites += 1
      else this.otherLosses.set(news.how, 1 + (this.otherLosses.get(news.how) ?? 0))
    }
    this.onNews(news)
  }
}

/** All replicas of a run. However the demo ends, none of its processes outlives it: see also replica-life.ts. */
export class Fleet<Config extends object = object> {
  readonly replicas: DemoReplica[] = []
  private readonly programs: readonly string[]
  private readonly config: Config
  private readonly onNews: (news: DemoNews) => void
  private hasEnded = false

  /**
   * @param programs the replicas' programs: they take turns, so that several versions work beside each other
   * @param config the configuration they share, except for their names
   * @param onNews called with each of their messages
   */
  constructor(programs: readonly string[], config: Config, onNews: (news: DemoNews) => void = () => undefined) {
    this.programs = programs
    this.config = config
    this.onNews = onNews
  }

  /** Starts a replica; resolves when it ticks. @throws ReplicaFailed */
  async start(name: string, more: Partial<Config> = {}): Promise<DemoReplica> {
    if (this.hasEnded) throw new Error('the demo has ended: no more replicas')
    const program = this.programs[this.replicas.length % this.programs.length]!
    const replica = new DemoReplica(name, program, { ...this.config, ...more }, this.onNews)
    this.replicas.push(replica)
    this.tellSiblings()
    await replica.ready()
    return replica
  }

  get living(): DemoReplica[] {
    return this.replicas.filter((replica) => replica.isAlive)
  }

  /** The reason why a replica could not continue. */
  failure(): string | undefined {
    return this.replicas.map(({ name, failure }) => failure && `replica ${name}: ${failure}`).find(Boolean)
  }

  /** The factor by which things take longer, here or in a replica, for lack of CPU. */
  slowness(): number {
    return slowness(Math.max(...this.replicas.map((replica) => replica.slowness)))
  }

  refusedLateWrites(of: (replica: DemoReplica) => boolean = () => true): number {
    return this.replicas.filter(of).reduce((sum, replica) => sum + replica.refusedLateWrites, 0)
  }

  /**
   * Evidence for a report of figures that are off: the leases that replicas lost besides late writes, and the first lines of their logs.
   */
  lastWords(): string[] {
    return this.replicas.flatMap(({ name, otherLosses, said }) => [
      ...[...otherLosses].map(([how, count]) => `replica ${name}: ${numbered(count, 'time')} lease lost (${how})`),
      ...said.slice(0, LINES_EACH).map((line) => `replica ${name}: ${line}`),
    ])
  }

  async end(): Promise<void> {
    this.hasEnded = true
    for (const replica of this.living) replica.kill()
    await Promise.all(this.replicas.map((replica) => replica.ended))
  }

  private tellSiblings(): void {
    const pids = this.living.flatMap(({ pid }) => (pid === undefined ? [] : [pid]))
    for (const replica of this.living) {
      replica.tell({ kind: 'siblings', pids: pids.filter((pid) => pid !== replica.pid) })
    }
  }
}
