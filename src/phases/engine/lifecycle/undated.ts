import type { Collection, Document } from 'mongodb'
import { isServerError } from '../../../database/index.js'
import { dateUndated, type Terms } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'

/** Most of what a look finds is claimed at once: a phase is asked about when each look has found something due in it for this long. */
const FIRST_AFTER_MS = 5_000
const EVERY_MS = 30_000

/** Dates documents that are due, that this replica leaves due, and that don't say since when (docs/operations.md, PhaselockDueTooLong). */
export class UndatedDocuments {
  /** By phase in which the last look found something due: when it is asked about next, in monotonic time. */
  private readonly nextAtMs = new Map<string, number>()

  constructor(
    private readonly collection: Collection<Document>,
    private readonly terms: () => Terms,
    private readonly clock: Clock,
  ) {}

  /** @param due the working phases in which a look has just found something due */
  async leftDue(due: ReadonlySet<string>): Promise<void> {
    const now = this.clock.monotonicMs()
    for (const phase of this.nextAtMs.keys()) if (!due.has(phase)) this.nextAtMs.delete(phase)
    for (const phase of due) {
      const atMs = this.nextAtMs.get(phase)
      if (atMs !== undefined && now < atMs) continue
      this.nextAtMs.set(phase, now + (atMs === undefined ? FIRST_AFTER_MS : EVERY_MS))
      if (atMs !== undefined) await this.date(phase)
    }
  }

  /** Nothing depends on it: what the server refuses is tried again later; an outage is the tick's to report. */
  private async date(phase: string): Promise<void> {
    try {
      await dateUndated(this.collection, this.terms(), phase)
    } catch (error) {
      if (!isServerError(error)) throw error
    }
  }
}
