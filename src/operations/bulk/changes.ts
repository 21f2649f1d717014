import { BSON, type Collection, type Db, type Document, type Filter } from 'mongodb'
import { isBulkWriteError, isDuplicateKey, protocolCollection } from '../../database/index.js'
import {
  type Before,
  beforeOf,
  beforeProjection,
  COMMITTED,
  idKey,
  isAsRead,
  readOwnFields,
  stateWanted,
  type Terms,
  wasActedOn,
} from '../../lock/index.js'
import { Unavailable } from '../../phases/index.js'
import { systemClock } from '../../time/index.js'
import type { Acted } from './operation.js'
import { EXACT } from './selection.js'

/** The collection of documents' fields before an operation acted on them. */
export const CHANGES_COLLECTION = 'phaselock.operations.changes'

const KEPT_MS = 30 * 24 * 3_600_000

/** A document before an operation acted on it. `_id`: the operation's, and the document's number in it. */
export interface Change {
  readonly _id: string
  readonly document: unknown
  readonly before: Before
  /** The state that its owner wanted. */
  readonly state?: unknown
  /** Of the step that has kept it: one with a lower fence, which has lost the operation since, changes nothing of it. Absent: kept by an earlier version. */
  readonly fence?: number
}

const changesIn = (db: Db): Collection<Change & { expiresAt: Date }> => protocolCollection(db, CHANGES_COLLECTION)

/** The id of the change to the n-th document of an operation. */
export const changeId = (operation: string, n: number): string => `${operation}#${String(n).padStart(9, '0')}`
/** The range of an operation's changes; $ is the character after #. */
const rangeOf = (operation: string) => ({ $gt: `${operation}#`, $lt: `${operation}$` })

/** Creates the index by which changes expire with their operation. */
export const prepareChanges = async (db: Db): Promise<void> => {
  await changesIn(db).createIndex({ expiresAt: 1 }, { expireAfterSeconds: 0 })
}

interface Page {
  readonly operation: string
  /** The number of its first document in the operation. */
  readonly first: number
  readonly ids: readonly unknown[]
  /** That of the step that works on it. */
  readonly fence: number
  /** Another step, which may go on still, has worked on it before. */
  readonly isRepeated: boolean
  /** The owner's fields that the operation sets and an undo puts back, besides the lease and `progress`; or the state alone. */
  readonly fields: 'state' | readonly string[]
}

/** The maximum number of writes to a document that others keep changing before each write; after that it is left alone. */
const MOST_WRITES = 3

/**
 * The documents of a page before they are acted on. They are stored first, then acted on as long as they are unchanged.
 *
 * Invariant: an operation's write matches a document only if it is what was kept of it. So an undo puts back what was there just before that write,
 * and what others have changed until then. Two steps may work on a page, as one stands still past its lease: from the moment at which the later one
 * reads the documents, the earlier one keeps nothing of them anew, for their fences tell which is which.
 */
export class KeptChanges {
  private readonly read = new Map<string, Document>()
  private readonly changeIds: ReadonlyMap<string, string>

  private constructor(
    private readonly db: Db,
    private readonly documents: Collection,
    private readonly terms: Terms,
    private readonly page: Page,
  ) {
    const { operation, first, ids } = page
    this.changeIds = new Map(ids.map((id, i) => [idKey(id), changeId(operation, first + i)]))
  }

  /** Stores them. Those that were stored before a crash stay as they are if they may have been acted on. */
  static async of(db: Db, documents: Collection, terms: Terms, page: Page): Promise<KeptChanges> {
    const kept = new KeptChanges(db, documents, terms, page)
    if (page.isRepeated) await kept.shutOutEarlier()
    const changes = await kept.readAnew(page.ids, COMMITTED)
    if (changes.length === 0) return kept
    try {
      await changesIn(db).insertMany(changes, { ordered: false })
    } catch (error) {
      if (!isBulkWriteError(error) || ![error.writeErrors].flat().every(isDuplicateKey)) throw error
      await kept.store(
        changes.filter(({ document }) => isUnmarked(kept.read.get(idKey(document))!, terms, page.operation)),
      )
    }
    return kept
  }

  /**
   * Acts on a document as long as it equals its stored version; otherwise stores it again and retries.
   * @param write acts on it if it matches a condition
   */
  async act(id: unknown, write: (isAsKept: Filter<Document>) => Promise<Acted>): Promise<Acted> {
    for (let writes = 1; ; writes += 1) {
      const was = this.read.get(idKey(id))
      const acted = await write(was ? isAsRead(was, this.terms, this.page.fields) : NOTHING)
      const isSkipped = typeof acted === 'object' && 'skipped' in acted
      if (!isSkipped) return acted
      const changes = await this.readAnew([id])
      if (isSame(was, this.read.get(idKey(id)))) return acted
      if (writes === MOST_WRITES) return { skipped: 'it was changed again and again meanwhile' }
      await this.store(changes)
    }
  }

  private async readAnew(
    ids: readonly unknown[],
    concern: Partial<typeof COMMITTED> = {},
  ): Promise<readonly (Change & { expiresAt: Date })[]> {
    const { documents, terms, page } = this
    const fields = page.fields === 'state' ? [] : page.fields
    const projection = beforeProjection(terms, fields)
    const filter = { _id: { $in: ids as never[] } }
    const found = await readOwnFields((how) =>
      documents.find(filter, { projection, ...concern, ...EXACT, ...how }).toArray(),
    )
    for (const id of ids) this.read.delete(idKey(id))
    for (const one of found) this.read.set(idKey(one['_id']), one)
    const expiresAt = new Date(systemClock.now().getTime() + KEPT_MS)
    return found.flatMap((one) => {
      const _id = this.changeIds.get(idKey(one['_id']))
      const state = stateWanted(one, terms)
      const kept = {
        document: one['_id'] as unknown,
        before: beforeOf(one, terms, fields),
        expiresAt,
        fence: page.fence,
      }
      return _id === undefined ? [] : [{ _id, ...kept, ...(state !== undefined && { state }) }]
    })
  }

  /** From now on no step with a lower fence keeps anything anew. */
  private async shutOutEarlier(): Promise<void> {
    const ids = [...this.changeIds.values()]
    await changesIn(this.db).updateMany({ _id: { $in: ids } }, { $max: { fence: this.page.fence } })
  }

  /** @throws Unavailable where a later step has the page */
  private async store(changes: readonly (Change & { expiresAt: Date })[]): Promise<void> {
    if (changes.length === 0) return
    const isOwn = { fence: { $not: { $gt: this.page.fence } } }
    const writes = changes.map((one) => ({
      replaceOne: { filter: { _id: one._id, ...isOwn }, replacement: one, upsert: true },
    }))
    try {
      await changesIn(this.db).bulkWrite(writes, { ordered: false })
    } catch (error) {
      if (!isBulkWriteError(error) || ![error.writeErrors].flat().every(isDuplicateKey)) throw error
      throw new Unavailable('another process has taken over its page')
    }
  }
}

const NOTHING: Filter<Document> = { $nor: [{}] }

const isSame = (one: Document | undefined, other: Document | undefined): boolean =>
  one === undefined || other === undefined
    ? one === other
    : Buffer.from(BSON.serialize(one)).equals(BSON.serialize(other))

/** True if the operation certainly hasn't acted on it. A document whose `progress` isn't ours takes no mark. */
const isUnmarked = (document: Document, terms: Terms, operation: string): boolean => {
  const progress: unknown = document[terms.progress] ?? {}
  const isOurs = typeof progress === 'object' && !Array.isArray(progress) && typeof document['phase'] === 'string'
  return isOurs && !wasActedOn(document, terms, operation)
}

/** The number of documents that an operation may have changed. */
export const countChanges = (db: Db, operation: string): Promise<number> =>
  changesIn(db).countDocuments({ _id: rangeOf(operation) })

/** The changes after a given one, in order. */
export async function nextChanges(db: Db, operation: string, after: unknown, limit: number): Promise<string[]> {
  const range = { ...rangeOf(operation), ...(typeof after === 'string' && { $gt: after }) }
  const options = { projection: { _id: 1 }, sort: { _id: 1 }, limit } as const
  return (await changesIn(db).find({ _id: range }, options).toArray()).map(({ _id }) => _id)
}

export const changeNamed = (db: Db, id: string): Promise<Change | null> => changesIn(db).findOne({ _id: id }, EXACT)
