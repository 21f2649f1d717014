import type { Db } from 'mongodb'
import type { RecordedOutcome } from '../../lock/index.js'
import { checkOptions, t } from '../../options/index.js'
import { EVENTS_COLLECTION } from './event-writer.js'
import { newestRecords, RECORD_QUERY, type RecordQuery } from './records.js'

/** An event of a document: the end of one of its steps. */
export interface DocumentEvent {
  /** The time when it was recorded: the server's time as the replica knew it, within a second. */
  readonly at: Date
  /** The document's lifecycle. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly document: unknown
  /** The phase that the step ran in. */
  readonly from: string
  /** The phase that follows; the same unless it moved. */
  readonly to: string
  /** The name of the step; null: it has no name. */
  readonly step: string | null
  /** The step's outcome. */
  readonly outcome: RecordedOutcome
  /** The reason of a wait or a park, or the error's message; null: none. */
  readonly reason: string | null
  /** The time that its handler ran, in ms. */
  readonly ms: number
  /** The replica that recorded it. */
  readonly replica: string
  /** The token of its record, as in the document's history. */
  readonly by: string
}

/** The events to list. */
export interface EventsQuery extends RecordQuery {
  /** Only events that this replica has recorded: its whole name, as `phaselock replicas` shows it. */
  readonly replica?: string | undefined
  /** Only these ends, such as `error`. */
  readonly outcome?: string | undefined
}

const query = t.object({ ...RECORD_QUERY, replica: t.optional(t.name), outcome: t.optional(t.name) })

/**
 * The events of documents, as far as their lifecycles keep them (docs/events.md).
 * @example
 * ```ts
 * await new Events(db).list({ documents: ['order-4711'] }) // [{ at, lifecycle: 'order', document: 'order-4711', from: 'Packing', to: 'Sent', outcome: 'moveTo', ... }]
 * ```
 * @throws InvalidOptions for what isn't a database
 */
export class Events {
  private readonly db: Db

  constructor(db: Db) {
    // The checked one reads as Phaselock does, whatever options the client has.
    this.db = checkOptions('new Events', t.object({ db: t.aDatabase }), { db }).db
  }

  /**
   * Lists events, the newest first.
   * @throws InvalidOptions
   */
  async list(options: EventsQuery = {}): Promise<readonly DocumentEvent[]> {
    const asked = checkOptions('events.list', query, options)
    const isNarrow = asked.documents !== undefined || asked.lifecycle !== undefined || asked.replica !== undefined
    const events = this.db.collection(EVENTS_COLLECTION)
    // By time alone: the events of each lifecycle by its index, merged.
    const ofEach = isNarrow ? {} : { lifecycle: { $in: await events.distinct('lifecycle') } }
    const found = await newestRecords(events, asked, ofEach)
    return found as unknown as readonly DocumentEvent[]
  }
}
