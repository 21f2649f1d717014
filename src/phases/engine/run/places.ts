/** Where a step runs: on the event loop, or in a worker thread. */
export type PlaceKind = 'loop' | 'thread'

interface Waiting {
  readonly number: number
  readonly begin: () => void
}

/**
 * The places in which the steps of a lifecycle run: a number in all, some of them in threads. They are given in the order in which they
 * were asked for; a step that waits for a thread holds up nobody else.
 *
 * Invariant: nobody waits who could have a place. So one that is free when it is asked for is given at once.
 */
export class Places {
  private asked = 0
  private readonly taken: Record<PlaceKind, number> = { loop: 0, thread: 0 }
  private readonly waiting: Readonly<Record<PlaceKind, Waiting[]>> = { loop: [], thread: [] }

  constructor(
    private most: number,
    private mostInThreads: number,
  ) {}

  get takenCount(): number {
    return this.taken.loop + this.taken.thread
  }
  get waitingCount(): number {
    return this.waiting.loop.length + this.waiting.thread.length
  }

  /** Whether anybody waits for a place of a kind. */
  isWaitedFor(kind: PlaceKind): boolean {
    return this.waiting[kind].length > 0
  }

  /** Resolves when its turn has come; undefined: it has come already, so that a step needn't pay for a promise. */
  take(kind: PlaceKind): Promise<void> | undefined {
    if (this.isFree(kind)) {
      this.taken[kind] += 1
      return undefined
    }
    this.asked += 1
    return new Promise((begin) => this.waiting[kind].push({ number: this.asked, begin }))
  }

  giveBack(kind: PlaceKind): void {
    this.taken[kind] -= 1
    this.letIn()
  }

  /** From now on there is a place for everybody: at a stop, when no handler begins any more. */
  letAllIn(): void {
    this.most = Number.POSITIVE_INFINITY
    this.mostInThreads = Number.POSITIVE_INFINITY
    this.letIn()
  }

  private letIn(): void {
    for (let kind = this.nextKind(); kind; kind = this.nextKind()) {
      this.taken[kind] += 1
      this.waiting[kind].shift()!.begin()
    }
  }

  /** Among those for whom there is a place, the kind that the longest waiting one needs. */
  private nextKind(): PlaceKind | undefined {
    const loop = this.isFree('loop') ? this.waiting.loop[0] : undefined
    const thread = this.isFree('thread') ? this.waiting.thread[0] : undefined
    if (!thread) return loop && 'loop'
    return loop && loop.number < thread.number ? 'loop' : 'thread'
  }

  private isFree(kind: PlaceKind): boolean {
    return this.takenCount < this.most && (kind === 'loop' || this.taken.thread < this.mostInThreads)
  }
}
