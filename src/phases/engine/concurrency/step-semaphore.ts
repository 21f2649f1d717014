/** The kind of place that a step runs in: on the event loop, or in a worker thread. */
export type StepKind = 'loop' | 'thread'

/** The time after which places hang: when all are taken and none has been given back for this long. */
const HANG_AFTER_MS = 5_000

interface Waiter {
  readonly number: number
  readonly sinceMs: number
  /** Called with true if it has a place. */
  readonly resolve: (hasPlace: boolean) => void
}

/**
 * The places that the steps of a lifecycle run in: a number in all, some of them in threads. They are given in the order of the requests; a step that
 * waits for a thread holds up no other step.
 *
 * Invariant: no step waits while there is a place for it. So one that is free when it is asked for is given immediately.
 */
export class StepSemaphore implements LifecycleSemaphore {
  private asked = 0
  private readonly taken: Record<StepKind, number> = { loop: 0, thread: 0 }
  private readonly released: Record<StepKind, number> = { loop: 0, thread: 0 }
  /** The last time when a kind's places were seen not to hang, and the number given back until then. */
  private readonly moved: Record<StepKind, { atMs: number; released: number }> = {
    loop: { atMs: 0, released: -1 },
    thread: { atMs: 0, released: -1 },
  }
  private readonly waiting: Readonly<Record<StepKind, Waiter[]>> = { loop: [], thread: [] }

  /**
   * @param shared those of its replica, which it needs as well; default: any number
   * @param onFree called when one of those has become free and no step waits for it
   */
  constructor(
    private most: number,
    private mostInThreads: number,
    private shared?: SharedSemaphore | undefined,
    readonly onFree: () => void = () => undefined,
  ) {
    shared?.join(this)
  }

  get takenCount(): number {
    return this.taken.loop + this.taken.thread
  }
  get waitingCount(): number {
    return this.waiting.loop.length + this.waiting.thread.length
  }

  /** True if a step waits that these places alone have room for. */
  get isWaiting(): boolean {
    return this.nextKind() !== undefined
  }

  /** The number of steps that may run at the same time, and the number that may begin now. */
  get counts(): { readonly places: number; readonly free: number } {
    const { most, shared, takenCount } = this
    const places = Math.min(most, shared?.most ?? most)
    return { places, free: Math.max(0, Math.min(places - takenCount, shared?.free ?? places)) }
  }

  /** The number of its steps that may run at the same time: now, and when its turn among those that share places has come. */
  mayRun(shared: SharedSemaphore): { readonly now: number; readonly inTurn: number } {
    const share = shared.shareOf(this)
    // A lifecycle below its share may have one step wait for its turn, so that it gets one.
    const now = this.takenCount + Math.max(shared.free, this.takenCount < share ? 1 : 0)
    return { now, inTurn: Math.max(now, share) }
  }

  /** True if a step waits for a place of a kind. */
  isWaitedFor(kind: StepKind): boolean {
    return this.waiting[kind].length > 0
  }

  /**
   * Resolves when its turn has come, to true; or to false: it has waited too long. undefined: its turn has come already, so that a step needn't pay
   * for a promise.
   */
  acquire(kind: StepKind, sinceMs = 0): Promise<boolean> | undefined {
    if (this.isFree(kind)) {
      this.put(kind)
      return undefined
    }
    this.asked += 1
    return new Promise((resolve) => this.waiting[kind].push({ number: this.asked, sinceMs, resolve }))
  }

  release(kind: StepKind): void {
    this.taken[kind] -= 1
    this.released[kind] += 1
    if (this.shared) this.shared.released()
    else this.admitWaiters()
  }

  /** True if those of a kind have hung for a while. It finds that out from one call a second. */
  hang(kind: StepKind, nowMs: number): boolean {
    const { loop, thread } = this.released
    const released = kind === 'loop' ? loop + thread : thread
    if (this.isFree(kind) || released !== this.moved[kind].released) this.moved[kind] = { atMs: nowMs, released }
    return nowMs - this.moved[kind].atMs >= HANG_AFTER_MS
  }

  /** Sends away the steps that have waited since before a time, because each kind's places may hang for long. */
  expire(beforeMs: number): void {
    for (const waiting of Object.values(this.waiting)) {
      while (waiting[0] && waiting[0].sinceMs < beforeMs) waiting.shift()!.resolve(false)
    }
  }

  /** Gives every step a place from now on: at a stop, when no handler begins any more. */
  open(): void {
    this.most = Number.POSITIVE_INFINITY
    this.mostInThreads = Number.POSITIVE_INFINITY
    this.admitWaiters()
  }

  admitOne(): void {
    const kind = this.nextKind()!
    this.put(kind)
    this.waiting[kind].shift()!.resolve(true)
  }

  private admitWaiters(): void {
    while (this.isWaiting) this.admitOne()
  }

  private put(kind: StepKind): void {
    this.taken[kind] += 1
    this.shared?.acquired(this)
  }

  /** The kind that the longest waiting step needs, among steps that could have a place. */
  private nextKind(): StepKind | undefined {
    const loop = this.hasOwn('loop') ? this.waiting.loop[0] : undefined
    const thread = this.hasOwn('thread') ? this.waiting.thread[0] : undefined
    if (!thread) return loop && 'loop'
    return loop && loop.number < thread.number ? 'loop' : 'thread'
  }

  private isFree(kind: StepKind): boolean {
    return this.hasOwn(kind) && ((this.shared?.free ?? 1) > 0 || this.most === Number.POSITIVE_INFINITY)
  }

  private hasOwn(kind: StepKind): boolean {
    return this.takenCount < this.most && (kind === 'loop' || this.taken.thread < this.mostInThreads)
  }
}

/** The places of one lifecycle, as seen by the others of its replica. */
interface LifecycleSemaphore {
  /** The number of its steps that run. */
  readonly takenCount: number
  /** True if a step waits that its own places have room for. */
  readonly isWaiting: boolean
  admitOne(): void
  /** Called when there is a free place, and no step waits for one: more may be claimed. */
  onFree(): void
}

/**
 * The places of a replica, if it has a number of them for all of its lifecycles together, beside each one's own. They are shared by max-min fairness.
 * A free one goes to the lifecycle with the fewest steps running, of those that have one waiting; of equals to the one that was served longest ago.
 * So none takes more than an equal share while another wants more than it has, and others use what a lifecycle doesn't need.
 *
 * Invariant: no step waits while both its lifecycle and the replica have a place for it.
 */
export class SharedSemaphore {
  /** The lifecycles, the one that was served longest ago first. */
  private readonly members: LifecycleSemaphore[] = []
  private taken = 0

  constructor(readonly most: number) {}

  /** The places of a number of them; undefined: any number. */
  static of(most: number | undefined): SharedSemaphore | undefined {
    return most === undefined ? undefined : new SharedSemaphore(most)
  }

  get free(): number {
    return this.most - this.taken
  }

  join(member: LifecycleSemaphore): void {
    this.members.push(member)
  }

  acquired(member: LifecycleSemaphore): void {
    this.taken += 1
    this.members.splice(this.members.indexOf(member), 1)
    this.members.push(member)
  }

  released(): void {
    this.taken -= 1
    this.admitWaiters()
    if (this.free > 0) for (const member of [...this.members]) member.onFree()
  }

  private admitWaiters(): void {
    while (this.free > 0) {
      const next = this.members
        .filter((member) => member.isWaiting)
        .reduce<LifecycleSemaphore | undefined>(
          (least, member) => (least && least.takenCount <= member.takenCount ? least : member),
          undefined,
        )
      if (!next) return
      next.admitOne()
    }
  }

  /** The number of steps of a lifecycle that may run at the same time while all that have some want an equal share. */
  shareOf(member: LifecycleSemaphore): number {
    const others = this.members.filter((one) => one !== member && (one.takenCount > 0 || one.isWaiting))
    return Math.max(1, Math.floor(this.most / (others.length + 1)))
  }
}
