import { BSON, type Collection, type Db, type Document, type IndexDescription, ObjectId } from 'mongodb'
import { once } from '../../concurrency/index.js'
import { isServerError } from '../../database/index.js'
import type { RecordedOutcome } from '../../lock/index.js'
import { idKey } from '../../lock/index.js'
import { checkOptions, t } from '../../options/index.js'
import type { EventsSetting } from '../model/settings.js'
import type { StepEnded } from '../reporting/observer.js'
import { newestRecords, RECORD_QUERY, type RecordQuery, removeOldest, unlessUnauthorized } from './records.js'

/** The collection of what has happened to documents, beyond the newest 20 entries that each keeps. */
export const EVENTS_COLLECTION = 'phaselock.events'

/** The time for collecting ends, so that those that happen together are written together. */
const GROUP_MS = 50
/** The most events in one command; it is sent as soon as there are this many. */
const MOST_IN_GROUP = 1_000
/** The most events that are kept in memory while the database is slow: about 5 MB. */
const MOST_KEPT = 10_000
/** The pause after a command that failed. */
const RETRY_MS = 1_000
/** The most bytes of an `_id`: of a larger one only the beginning is kept. */
const MOST_ID_BYTES = 1_000
/** One document in this many keeps all its events when they are sampled. It is chosen by the hash of its `_id`. */
const SAMPLED_OF = 100
/** The outcomes that are kept of every document even then. */
const NOTABLE: ReadonlySet<string> = new Set(['park', 'error', 'deadline'])
const DUPLICATE_KEY = 11_000

export interface EventWriterOptions {
  readonly db: Db
  readonly identity: string
  readonly keeps: EventsSetting
  readonly serverNow: () => Date
  readonly onLost: (count: number, why: string) => void
}

/**
 * Writes the ends of one lifecycle's steps to `phaselock.events`, in groups, after they were recorded and beside the next steps.
 *
 * Invariants: no step waits for it, and none fails because of it. The events kept in memory are bounded. It is for people. An event may be missing (a
 * crash within the moment until its group is written, more than the database takes). It is never there without its outcome, and never twice. Events
 * that this process leaves out are counted and reported.
 */
export class EventWriter {
  private readonly events: Collection
  private kept: Document[] = []
  private timer: NodeJS.Timeout | undefined
  private writing: Promise<void> | undefined
  private readonly prepared = once(() => unlessUnauthorized(() => this.events.createIndexes(INDEXES)))
  private stopped = false
  /** True if its last command failed: the next one is sent when its time has come, however many events are kept. */
  private isFailing = false

  constructor(private readonly options: EventWriterOptions) {
    // No one relies on a single event: it needn't be on the disk before the next is written.
    this.events = options.db.collection(EVENTS_COLLECTION, { writeConcern: { w: 1, j: false } })
  }

  /** Keeps the end of a step that was recorded under this token. Returns immediately. */
  ended(end: StepEnded, token: string): void {
    const { keeps, serverNow, identity, onLost } = this.options
    if (keeps.keep === 'sampled' && !NOTABLE.has(end.outcome) && !isSampled(end.id)) return
    if (this.kept.length >= MOST_KEPT || this.stopped) {
      onLost(1, 'the database does not keep up with them')
      return
    }
    const at = serverNow()
    const { lifecycle, id, phase: from, to, step, outcome, reason, ms } = end
    this.kept.push({
      _id: new ObjectId(),
      ...{ at, lifecycle, document: small(id), from, to, step, outcome, reason, ms: Math.floor(ms) },
      ...{ replica: identity, by: token, expiresAt: new Date(at.getTime() + keeps.forMs) },
    })
    if (this.kept.length >= MOST_IN_GROUP && !this.isFailing) this.write()
    else if (!this.timer) this.timer = setTimeout(() => this.write(), GROUP_MS).unref()
  }

  /** Resolves when all ends so far are written, or given up. */
  async settled(): Promise<void> {
    if (this.kept.length > 0) this.write()
    while (this.writing) await this.writing
  }

  /** Writes the rest for `mostMs` at most. Events that are still kept then are lost, and reported. */
  async stop(wait: (ms: number) => Promise<void>, mostMs: number): Promise<void> {
    await Promise.race([this.settled(), wait(mostMs)])
    this.stopped = true
    clearTimeout(this.timer)
    if (this.kept.length > 0) this.options.onLost(this.kept.splice(0).length, 'the replica has stopped')
  }

  private write(): void {
    clearTimeout(this.timer)
    this.timer = undefined
    this.isFailing = false
    this.writing ??= this.writeAll().finally(() => {
      this.writing = undefined
    })
  }

  /** Sends one command at a time: ends that come during one are the next group. */
  private async writeAll(): Promise<void> {
    while (this.kept.length > 0 && !this.stopped) {
      const group = this.kept.splice(0, MOST_IN_GROUP)
      try {
        await this.prepared()
        await this.events.insertMany(group, { ordered: false })
      } catch (error) {
        if (isServerError(error, DUPLICATE_KEY)) continue // it was sent before, and the answer was lost
        if (isServerError(error) && !isPassing(error)) {
          this.options.onLost(group.length, String((error as Error).message))
          continue
        }
        this.kept = [...group, ...this.kept]
        this.isFailing = true
        clearTimeout(this.timer)
        this.timer = setTimeout(() => this.write(), RETRY_MS).unref()
        return
      }
    }
  }
}

/** True if the server may take it a moment later. */
const isPassing = (error: Error): boolean =>
  ['RetryableWriteError', 'NetworkError'].some((label) =>
    (error as { hasErrorLabel?: (label: string) => boolean }).hasErrorLabel?.(label),
  )

/** The indexes by document, lifecycle and replica, each by time; and the one that lets events expire. */
const INDEXES: IndexDescription[] = [
  { key: { document: 1, at: -1 } },
  { key: { lifecycle: 1, at: -1 } },
  { key: { replica: 1, at: -1 } },
  { key: { expiresAt: 1 }, expireAfterSeconds: 0 },
]

/**
 * Removes the oldest events of a lifecycle that has more than it keeps.
 * @returns the number of removed events
 */
export const forgetEvents = (db: Db, lifecycle: string, most: number): Promise<number> =>
  removeOldest(db.collection(EVENTS_COLLECTION), most, { filter: { lifecycle }, hint: { lifecycle: 1, at: -1 } })

/**
 * True if a document's events are kept when they are sampled. The same on each replica, so that the story of a document is kept from its beginning to
 * its end, or not at all.
 */
export function isSampled(id: unknown): boolean {
  let hash = 2_166_136_261
  for (const character of idKey(id)) hash = Math.imul(hash ^ character.charCodeAt(0), 16_777_619) >>> 0
  return hash % SAMPLED_OF === 0
}

function small(id: unknown): unknown {
  const bytes = typeof id === 'string' ? id.length : BSON.calculateObjectSize({ id })
  if (bytes <= MOST_ID_BYTES) return id
  return typeof id === 'string' ? `${id.slice(0, MOST_ID_BYTES)}...` : `(an _id of ${bytes} bytes)`
}

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
