import type { EndWriter, Lease, StepEnd, Verdict } from '../../../lock/index.js'

/** The flushes in flight under load: while the server has one, the next one fills. Two are best (25,000 steps/s, one: 15,500, measured). */
const FLUSHES_UNDER_LOAD = 2
/** The most flushes in flight: below saturation nothing is gained by waiting for more ends. */
const MOST_FLUSHES = 8

interface Waiting {
  readonly end: StepEnd
  readonly resolve: (verdict: Verdict) => void
  readonly reject: (error: unknown) => void
}

/** True if the lease is still good after this verdict: only then may another write follow under it. */
const mayFollow = ({ kind }: Verdict): boolean => kind === 'recorded' || kind === 'rejected'

/**
 * Groups only those ends of steps that come at the same time: an end is sent at the end of this turn of the event loop. It is held back only if
 * documents are queueing for their steps and two commands are in flight already. It is then sent once one of those has come back: bigger groups
 * shorten the queue. So neither a slow handler nor a slow command holds up the outcome of a fast step, and a write that a command has left in doubt
 * is no longer in flight.
 *
 * Invariant: the writes of one lease go in the order of the requests, one at a time. The next is sent when the one before has its verdict, and not at
 * all if that lost the lease: then it has the same verdict.
 */
export class WriteGrouper {
  private waiting: Waiting[] = []
  private flushing = 0
  private scheduled = false
  /** The last write of each lease that has no verdict yet. */
  private readonly last = new Map<Lease, { readonly end: StepEnd; readonly verdict: Promise<Verdict> }>()

  constructor(
    private readonly writer: Pick<EndWriter, 'write'>,
    /** True while documents are queueing for their steps. */
    private readonly isLoaded: () => boolean,
  ) {}

  record(end: StepEnd): Promise<Verdict> {
    const before = this.last.get(end.lease)
    const verdict = before ? this.after(before.verdict, end) : this.send(end)
    this.last.set(end.lease, { end, verdict })
    return verdict
  }

  private async after(before: Promise<Verdict>, end: StepEnd): Promise<Verdict> {
    try {
      const verdict = await before
      return mayFollow(verdict) ? await this.send(end) : verdict
    } finally {
      this.decided(end)
    }
  }

  private send(end: StepEnd): Promise<Verdict> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ end, resolve, reject })
      this.schedule()
    })
  }

  /** Forgets an end that has its verdict, or never gets one. Handled here, because a `then` on each promise would cost every step something. */
  private decided(end: StepEnd): void {
    if (this.last.get(end.lease)?.end === end) this.last.delete(end.lease)
  }

  private schedule(): void {
    if (this.scheduled || this.waiting.length === 0) return
    if (this.flushing >= (this.isLoaded() ? FLUSHES_UNDER_LOAD : MOST_FLUSHES)) return
    this.scheduled = true
    setImmediate(() => {
      this.scheduled = false
      void this.flush()
    })
  }

  private async flush(): Promise<void> {
    const batch = this.waiting
    this.waiting = []
    this.flushing += 1
    let isOnItsWay = true
    const back = () => {
      if (isOnItsWay) this.flushing -= 1
      isOnItsWay = false
      this.schedule()
    }
    let byEnd: Map<StepEnd, Waiting> | undefined
    const decided = (end: StepEnd, verdict: Verdict) => {
      byEnd ??= new Map(batch.map((one) => [one.end, one]))
      this.decided(end)
      byEnd.get(end)!.resolve(verdict)
    }
    try {
      const ends = batch.map((one) => one.end)
      const verdicts = await this.writer.write(ends, { inDoubt: back, decided })
      for (const { end, resolve, reject } of batch) {
        const verdict = verdicts.get(end)
        this.decided(end)
        if (verdict) resolve(verdict)
        else reject(new Error('no verdict for a step'))
      }
    } catch (error) {
      for (const { end, reject } of batch) {
        this.decided(end)
        reject(error)
      }
    } finally {
      back()
    }
  }
}
