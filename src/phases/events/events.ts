import type { Db, Document, Filter } from 'mongodb'
import { type RecordedOutcome, readOwnFields } from '../../lock/index.js'
import { checkOptions, t } from '../../options/index.js'
import { EVENTS_COLLECTION } from './event-writer.js'

/** Something that happened to a document: how a step of it ended. */
export interface DocumentEvent {
  /** When it was recorded: the server's time as the replica knew it, within a second. */
  readonly at: Date
  /** The document's lifecycle. */
  readonly lifecycle: string
  /** The document's `_id`. */
  readonly document: unknown
  /** The phase in which the step ran. */
  readonly from: string
  /** The phase that follows; the same unless it moved. */
  readonly to: string
  /** The name of the step; null: it has none. */
  readonly step: string | null
  /** How it ended. */
  readonly outcome: RecordedOutcome
  /** What it waits for, why it was parked, or the error's message; null: none. */
  readonly reason: string | null
  /** How long its handler ran, in ms. */
  readonly ms: number
  /** The replica that recorded it. */
  readonly replica: string
  /** The token under which it was recorded, as in the document's history. */
  readonly by: string
}

/** Which events are meant. */
export interface EventsQuery {
  /** Only of documents of this lifecycle. */
  readonly lifecycle?: string | undefined
  /** Only of documents with one of these `_id`s. */
  readonly documents?: readonly unknown[] | undefined
  /** Only what this replica has recorded: its whole name, as `phaselock replicas` shows it. */
  readonly replica?: string | undefined
  /** Only these ends, such as `error`. */
  readonly outcome?: string | undefined
  /** Only what was recorded from this time on. */
  readonly since?: Date | undefined
  /** Only what was recorded before this time. */
  readonly until?: Date | undefined
  /** At most this many, 1 to 10,000: the newest. Default 50. */
  readonly limit?: number | undefined
}

const aDate = t.where<Date>((value) => value instanceof Date && !Number.isNaN(value.getTime()), t.expecting('a date'))
const query = t.object({
  lifecycle: t.optional(t.aName),
  documents: t.anything<readonly unknown[]>(),
  replica: t.optional(t.aName),
  outcome: t.optional(t.aName),
  since: t.optional(aDate),
  until: t.optional(aDate),
  limit: t.withDefault(t.whole(1, 10_000), 50),
})

/**
 * What has happened to documents, as far as their lifecycles keep it (docs/events.md).
 * @example
 * ```ts
 * await new Events(db).list({ documents: ['order-4711'] }) // [{ at, lifecycle: 'order', document: 'order-4711', from: 'Packing', to: 'Sent', outcome: 'moveTo', ... }]
 * ```
 * @throws InvalidOptions for what isn't a database
 */
export class Events {
  constructor(private readonly db: Db) {
    checkOptions('new Events', t.object({ db: t.aDatabase }), { db })
  }

  /**
   * Events, the newest first.
   * @throws InvalidOptions
   */
  async list(options: EventsQuery = {}): Promise<readonly DocumentEvent[]> {
    const { documents, since, until, limit, ...exactly } = checkOptions('events.list', query, options)
    const equal = Object.entries(exactly).flatMap(([field, value]) =>
      value === undefined ? [] : [[field, { $eq: value }]],
    )
    const isNarrow = documents !== undefined || exactly.lifecycle !== undefined || exactly.replica !== undefined
    const filter: Filter<Document> = {
      ...Object.fromEntries(equal),
      ...(documents && { document: { $in: [...documents] } }),
      ...((since || until) && { at: { ...(since && { $gte: since }), ...(until && { $lt: until }) } }),
    }
    const events = this.db.collection(EVENTS_COLLECTION)
    // By time alone: each lifecycle's by its index, merged.
    if (!isNarrow) filter['lifecycle'] = { $in: await events.distinct('lifecycle') }
    const found = await readOwnFields((how) =>
      events
        .find(filter, { projection: { _id: 0, expiresAt: 0 }, ...how })
        .sort({ at: -1 })
        .limit(limit)
        .toArray(),
    )
    return found as unknown as readonly DocumentEvent[]
  }
}
