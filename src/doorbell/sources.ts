import type { ChangeStream, Db, Document, FindCursor } from 'mongodb'
import { answered, awaitMsOf } from '../database/index.js'
import { DOORBELL_COLLECTION, isNotCapped, type MakeOptions, makeDoorbell } from './collection.js'

/** The mechanism that brings rings to a listener. */
export type DoorbellKind = 'capped' | 'changeStream'

/**
 * An open source of rings: it hears everything stored from now on, and no earlier rings. Both kinds read the same collection, so a
 * ringer needn't know its listeners or their kind.
 */
export interface RingSource {
  readonly kind: DoorbellKind
  /**
   * Waits for entries for half a minute at most, then returns none. Entries stored between two calls come with the next.
   * @throws NotHeard when it has ended, and what the driver throws; it is of no use after that
   */
  next(): Promise<Document[]>
  /** Also ends a wait. Never throws. */
  close(): Promise<void>
}

/** The server has ended a cursor without an error. */
class NotHeard extends Error {
  override readonly name = 'NotHeard'
  constructor(kind: DoorbellKind) {
    super(`expected the ${kind === 'capped' ? 'tailable cursor' : 'change stream'} to stay open, the server closed it`)
  }
}

/** More entries than the collection can hold, so that the first batch brings all the old ones. */
const BATCH = 10_000
/** The time to wait beyond the server's own limit. */
const SLACK_MS = 5_000
const CLOSE_WITHIN_MS = 1_000
/** The first reply doesn't wait for an entry. The driver may never answer a command written to a connection that is being closed. */
const OPEN_WITHIN_MS = 10_000
const MOST_ATTEMPTS = 3

/**
 * Listens with a tailable cursor: an entry arrives within a round trip, and an idle listener sends two commands a minute.
 * Creates the collection if it is missing, empty or not capped, and may be created.
 * @throws DoorbellUnavailable and what the driver throws
 */
export async function openCapped(options: MakeOptions): Promise<RingSource> {
  for (let attempt = 1; ; attempt += 1) {
    const tail = new Tail(options.db)
    try {
      // There is always an entry: without one the driver would keep waiting. All that this brings is old.
      await tail.next(OPEN_WITHIN_MS)
      return tail
    } catch (error) {
      await tail.close()
      const isDead = error instanceof NotHeard
      if (!isDead && !isNotCapped(error)) throw error
      if (attempt === MOST_ATTEMPTS) throw new NotHeard(tail.kind)
      await makeDoorbell(isDead ? 'dead' : 'notCapped', options)
    }
  }
}

/**
 * Listens with a change stream on the same collection. It watches rings, not the lifecycles' documents: the server reads its whole
 * oplog either way, but a listener gets at most 20 entries a second from each ringer instead of one per document.
 */
export async function openChangeStream(options: MakeOptions): Promise<RingSource> {
  // Ringers ring only if there is a capped collection: this ensures that there is one for every kind of listener.
  await (await openCapped(options)).close()
  const changes = new Changes(options.db)
  try {
    await changes.opened()
    return changes
  } catch (error) {
    await changes.close()
    throw error
  }
}

class Tail implements RingSource {
  readonly kind = 'capped'
  private readonly cursor: FindCursor<Document>
  private readonly withinMs: number

  constructor(db: Db) {
    const awaitMs = awaitMsOf(db)
    this.withinMs = awaitMs + SLACK_MS
    // No filter: with one that matches nothing the driver would keep waiting, and no caller could see when the cursor was open.
    this.cursor = db
      .collection(DOORBELL_COLLECTION, { readPreference: 'primary' })
      .find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: awaitMs, batchSize: BATCH })
  }

  async next(mostMs = this.withinMs): Promise<Document[]> {
    const first = await answered(this.cursor.tryNext(), Math.min(mostMs, this.withinMs))
    if (first) return [first, ...this.cursor.readBufferedDocuments()]
    if (this.cursor.closed) throw new NotHeard(this.kind)
    return []
  }

  close(): Promise<void> {
    return closeQuietly(this.cursor)
  }
}

/** The changes that end a stream; besides these only inserts are of interest. */
const ENDS = ['drop', 'dropDatabase', 'invalidate', 'rename']
const PIPELINE = [{ $match: { operationType: { $in: ['insert', ...ENDS] } } }]

class Changes implements RingSource {
  readonly kind = 'changeStream'
  private readonly stream: ChangeStream<Document>
  private readonly withinMs: number
  private first: Promise<Document | null> | undefined

  constructor(db: Db) {
    const awaitMs = awaitMsOf(db)
    this.withinMs = awaitMs + SLACK_MS
    this.stream = db.collection(DOORBELL_COLLECTION).watch(PIPELINE, { maxAwaitTimeMS: awaitMs })
  }

  /** Resolves once the stream is open. The driver opens it with the first wait for a change; its first resume token says that it is open. */
  async opened(): Promise<void> {
    const open = new Promise<void>((resolve) => this.stream.once('resumeTokenChanged', () => resolve()))
    this.first = this.tryNext()
    await Promise.race([open, this.first])
    this.first.catch(() => undefined) // `next` awaits it, if there is one
  }

  async next(): Promise<Document[]> {
    const waiting = this.first ?? this.tryNext()
    this.first = undefined
    const changes = [await waiting]
    while (this.stream.bufferedCount() > 0) changes.push(await this.tryNext())
    const came = changes.filter((change) => change !== null)
    if (this.stream.closed || came.some((change) => ENDS.includes(change['operationType']))) {
      throw new NotHeard(this.kind)
    }
    return came.map((change) => change['fullDocument'] as Document)
  }

  close(): Promise<void> {
    return closeQuietly(this.stream)
  }

  private tryNext(): Promise<Document | null> {
    return answered(this.stream.tryNext(), this.withinMs)
  }
}

const closeQuietly = (cursor: { close(): Promise<void> }): Promise<void> =>
  answered(cursor.close(), CLOSE_WITHIN_MS).catch(() => undefined)
