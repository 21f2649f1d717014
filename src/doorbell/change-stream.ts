import type { ChangeStream, Db, Document } from 'mongodb'
import { answered, awaitMsOf } from '../database/index.js'
import { CappedSource } from './capped.js'
import { DOORBELL_COLLECTION, type MakeOptions } from './collection.js'
import { NotHeard, type OpenSource, type RingSource } from './source.js'

const SLACK_MS = 5_000
const CLOSE_WITHIN_MS = 1_000

/**
 * Listens with a change stream on the same collection. It watches rings, not the lifecycles' documents: the server reads its
 * whole oplog either way, but a listener gets at most 20 entries a second from each ringer instead of one per document.
 */
export class ChangeStreamSource implements RingSource {
  readonly kind = 'changeStream'
  private readonly capped: CappedSource

  constructor(private readonly options: MakeOptions) {
    this.capped = new CappedSource(options)
  }

  async open(): Promise<OpenSource> {
    // Ringers ring only if there is a capped collection: this ensures that there is one, whoever listens and however.
    await (await this.capped.open()).close()
    const changes = new Changes(this.options.db)
    try {
      await changes.opened()
      return changes
    } catch (error) {
      await changes.close()
      throw error
    }
  }
}

/** What ends a stream; besides these only inserts are of interest. */
const ENDS = ['drop', 'dropDatabase', 'invalidate', 'rename']
const PIPELINE = [{ $match: { operationType: { $in: ['insert', ...ENDS] } } }]

class Changes implements OpenSource {
  private readonly stream: ChangeStream<Document>
  private readonly withinMs: number
  private first: Promise<Document | null> | undefined

  constructor(db: Db) {
    const awaitMs = awaitMsOf(db)
    this.withinMs = awaitMs + SLACK_MS
    this.stream = db.collection(DOORBELL_COLLECTION).watch(PIPELINE, { maxAwaitTimeMS: awaitMs })
  }

  /** The driver opens a stream with the first wait for a change; its first resume token says that it is open. */
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
      throw new NotHeard('changeStream')
    }
    return came.map((change) => change['fullDocument'] as Document)
  }

  async close(): Promise<void> {
    await answered(this.stream.close(), CLOSE_WITHIN_MS).catch(() => undefined)
  }

  private tryNext(): Promise<Document | null> {
    return answered(this.stream.tryNext(), this.withinMs)
  }
}
