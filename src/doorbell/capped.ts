import type { Db, Document, FindCursor } from 'mongodb'
import { answered, awaitMsOf } from '../database/index.js'
import { DOORBELL_COLLECTION, isNotCapped, type MakeOptions, makeDoorbell } from './collection.js'
import { NotHeard, type OpenSource, type RingSource } from './source.js'

/** More entries than the collection can hold, so that the first batch brings all that is old. */
const BATCH = 10_000
/** Beyond what the server may wait. */
const SLACK_MS = 5_000
const CLOSE_WITHIN_MS = 1_000
/** The first reply waits for no entry. The driver may never answer what it writes to a connection that is being closed. */
const OPEN_WITHIN_MS = 10_000
const MOST_ATTEMPTS = 3

/** Listens with a tailable cursor: an entry is there within a round trip, and an idle listener sends two commands a minute. */
export class CappedSource implements RingSource {
  readonly kind = 'capped'

  constructor(private readonly options: MakeOptions) {}

  /** Makes the collection where it is missing, empty or not capped, and may be made. */
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
      // There is an entry, always: the driver would go on to wait for one. All that it brings is old.
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
    // No filter: with one that nothing matches the driver would go on to wait, and nobody could tell when the cursor was there.
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
