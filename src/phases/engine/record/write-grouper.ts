import { ANSWERED, type Batch, Batcher } from '../../../concurrency/index.js'
import type { EndWriter, Lease, StepEnd, Verdict } from '../../../lock/index.js'

/** The flushes in flight under load: while the server has one, the next one fills. Two are best (25,000 steps/s, one: 15,500, measured). */
const FLUSHES_UNDER_LOAD = 2
/** The most flushes in flight: below saturation nothing is gained by waiting for more ends. */
const MOST_FLUSHES = 8

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
  /** The last write of each lease that has no verdict yet. */
  private readonly last = new Map<Lease, { readonly end: StepEnd; readonly verdict: Promise<Verdict> }>()

  private readonly writes: Batcher<StepEnd, Verdict>

  /** @param isLoaded true while documents are queueing for their steps */
  constructor(
    private readonly writer: Pick<EndWriter, 'write'>,
    isLoaded: () => boolean,
  ) {
    const most = () => (isLoaded() ? FLUSHES_UNDER_LOAD : MOST_FLUSHES)
    this.writes = new Batcher((ends, batch) => this.write(ends, batch), most)
  }

  record(end: StepEnd): Promise<Verdict> {
    const before = this.last.get(end.lease)
    const verdict = before ? this.after(before.verdict, end) : this.writes.ask(end)
    this.last.set(end.lease, { end, verdict })
    return verdict
  }

  private async after(before: Promise<Verdict>, end: StepEnd): Promise<Verdict> {
    try {
      const verdict = await before
      return mayFollow(verdict) ? await this.writes.ask(end) : verdict
    } finally {
      this.decided(end)
    }
  }

  /** Forgets an end that has its verdict, or never gets one. Handled here, because a `then` on each promise would cost every step something. */
  private decided(end: StepEnd): void {
    if (this.last.get(end.lease)?.end === end) this.last.delete(end.lease)
  }

  private async write(ends: readonly StepEnd[], { asked, back }: Batch<StepEnd, Verdict>): Promise<typeof ANSWERED> {
    let byEnd: Map<StepEnd, (verdict: Verdict) => void> | undefined
    const decided = (end: StepEnd, verdict: Verdict) => {
      byEnd ??= new Map(asked.map(({ value, resolve }) => [value, resolve]))
      this.decided(end)
      byEnd.get(end)!(verdict)
    }
    try {
      const verdicts = await this.writer.write(ends, { inDoubt: back, decided })
      for (const { value, resolve, reject } of asked) {
        const verdict = verdicts.get(value)
        if (verdict) resolve(verdict)
        else reject(new Error('no verdict for a step'))
      }
      return ANSWERED
    } finally {
      for (const end of ends) this.decided(end)
    }
  }
}
