import { described, ReplicaFailed, ReplicaProcess } from '../processes/replica-process.js'
import type { DemoNews, ToReplica } from './replica-messages.js'

const LINES = 100

/** A replica of a demo, and what it has reported so far. It is killed when the demo exits. */
export class DemoReplica extends ReplicaProcess<DemoNews, ToReplica> {
  /** Outcomes of this replica that came late and changed nothing. */
  refusedLateWrites = 0
  /** What else it lost, counted by kind: see LeaseLoss. */
  readonly otherLosses = new Map<string, number>()
  /** Warnings and errors of its log, the first hundred. */
  readonly said: string[] = []
  /** How many times longer things take there for lack of CPU. */
  slowness = 1
  /** It was told to end, so its end is no failure. */
  isDismissed = false
  private endedEarly: string | undefined

  constructor(
    readonly name: string,
    program: string,
    config: object,
    private readonly onNews: (news: DemoNews) => void,
  ) {
    super(program, { output: 'ignore', diesWithUs: true })
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

  /** Why it could not continue, or how it ended without being told to. */
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

  protected override heard(news: DemoNews): void {
    if (news.kind === 'log' && this.said.length < LINES) this.said.push(`${news.level}: ${news.message}`)
    if (news.kind === 'slowness') this.slowness = news.times
    if (news.kind === 'leaseLost') {
      if (news.how === 'refused') this.refusedLateWrites += 1
      else this.otherLosses.set(news.how, 1 + (this.otherLosses.get(news.how) ?? 0))
    }
    this.onNews(news)
  }
}
