import type { Db, Document, FindCursor } from 'mongodb'
import { answered, awaitMsOf } from '../database/index.js'
import { DOORBELL_COLLECTION, isNotCapped, type MakeOptions, makeDoorbell } from './collection.js'
import { NotHeard, type OpenSource, type RingSource } from './source.js'

/** More entries than the collection can hold, so that the first batch brings all the old ones. */
const BATCH = 10_000
/** How much longer to wait than the server may. */
const SLACK_MS = 5_000
const CLOSE_WITHIN_MS = 1_000
/** The first reply doesn't wait for an entry. The driver may never answer a command written to a connection that is being closed. */
const OPEN_WITHIN_MS = 10_000
const MOST_ATTEMPTS = 3

/** Listens with a tailable cursor: an entry arrives within a round trip, and an idle listener sends two commands a minute. */
export class CappedSource implements RingSource {
  readonly kind = 'capped'

  constructor(private readonly options: MakeOptions) {}

  /** Creates the collection if it is missing, empty or not capped, and may be created. */
  async open(): Promise<OpenSource> {
    for (let attempt = 1; ; attempt += 1) {
      const opened = await this.tryToOpen()
      if (typeof opened !== 'string') return opened
      if (attempt === MOST_ATTEMPTS) throw new NotHeard(this.kind)
      await makeDoorbell(opened, this.options)
    }
  }

  private async tryToOpen(): Promise<OpenSource | 'dead' | 'notCapped'> {
    const tail = new Tail(this.options.db)
    try {
      // There is always an entry: without one the driver would keep waiting. All that this brings is old.
      await tail.next(OPEN_WITHIN_MS)
      return tail
    } catch (error) {
      await tail.close()
      if (error instanceof NotHeard) return 'dead'
      if (isNotCapped(error)) return 'notCapped'
      throw error
    }
  }
}

class Tail implements OpenSource {
  private readonly cursor: FindCursor<Document>
  private readonly withinMs: number

  constructor(db: Db) {
    const awaitMs = awaitMsOf(db)
    this.withinMs = awaitMs + SLACK_MS
    // No filter: with one that matches nothing the driver would keep waiting, and nobody could tell when the cursor was open.
    this.cursor = db
      .collection(DOORBELL_COLLECTION, { readPreference: 'primary' })
      .find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: awaitMs, batchSize: BATCH })
  }

  async next(mostMs = this.withinMs): Promise<Document[]> {
    const first = await answered(this.cursor.tryNext(), Math.min(mostMs, this.withinMs))
    if (first) return [first, ...this.cursor.readBufferedDocuments()]
    if (this.cursor.closed) throw new NotHeard('capped')
    return []
  }

  async close(): Promise<void> {
    await answered(this.cursor.close(), CLOSE_WITHIN_MS).catch(() => undefined)
  }
}
