import type { Collection, Document } from 'mongodb'
import { isServerError } from '../../../database/index.js'
import { dateUndated, type Terms } from '../../../lock/index.js'
import type { Clock } from '../../../time/index.js'

/** The time after which a phase is asked about, if each look since has found something due in it. Most due documents are claimed immediately. */
const FIRST_AFTER_MS = 5_000
const EVERY_MS = 30_000

/** Dates due documents that this replica leaves due, and that don't record since when they are due (docs/operations.md, PhaselockDueTooLong). */
export class UndatedDocuments {
  /** The next time to ask, monotonic, by phase: for phases where the last look found something due. */
  private readonly nextAtMs = new Map<string, number>()

  constructor(
    private readonly collection: Collection<Document>,
    private readonly terms: () => Terms,
    private readonly clock: Clock,
  ) {}

  /** @param due the working phases where a look has just found something due */
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

  /** Dates the documents of a phase. No work depends on it: a refusal of the server is tried again later; the tick reports an outage. */
  private async date(phase: string): Promise<void> {
    try {
      await dateUndated(this.collection, this.terms(), phase)
    } catch (error) {
      if (!isServerError(error)) throw error
    }
  }
}
