/** The places of one lifecycle, as seen by the others of its replica. */
export interface LifecycleSemaphore {
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
