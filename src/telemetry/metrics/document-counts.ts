import { type Collection, type Db, type Document, type Filter, MinKey } from 'mongodb'
import { AS_IT_STANDS, CLAIM_INDEX, isDue, PARKED_AT, readLockTimeouts, type Terms, termsOf } from '../../lock/index.js'
import type { LifecycleModel, Phase } from '../../phases/index.js'

/** A count goes no further than this: a scrape must stay cheap however long a queue is. */
export const COUNT_LIMIT = 10_000
const MAX_TIME_MS = 5_000
const BOUND_SLACK_MS = 1_000

/** What the documents of one phase are doing. */
export interface PhaseCounts {
  readonly lifecycle: string
  readonly phase: string
  /** Of a working phase: due documents, at most {@link COUNT_LIMIT}. Undefined for others. */
  readonly due: number | undefined
  /** Of a working phase: how long the oldest due document has been due, in seconds; 0 when none is. */
  readonly oldestDueSeconds: number | undefined
  /** Parked documents, at most {@link COUNT_LIMIT}. */
  readonly parked: number
}

/**
 * Counts what is due and parked, by the server's clock. Every query walks a bounded piece of the claim index: at most a key
 * for each document counted, so 1 key where nothing is due, also beside 100,000 sleeping documents.
 */
export class DocumentCounts {
  constructor(
    private readonly db: Db,
    private readonly models: readonly LifecycleModel[],
  ) {}

  async count(): Promise<PhaseCounts[]> {
    const names = this.models.map((model) => model.name)
    const inForce = await readLockTimeouts(this.db, names, { maxTimeMS: MAX_TIME_MS })
    const counts = this.models.flatMap((model) => {
      // Before a replica has registered it there is no index either, and nothing to count.
      const found = inForce.get(model.name)
      if (!found) return []
      const terms = termsOf(found.dueMs, { progress: model.settings.progress })
      const phases = [...model.phases.values()].filter((phase) => phase.kind !== 'final')
      return phases.map((phase) => this.countPhase(model, phase, terms, found.now))
    })
    return Promise.all(counts)
  }

  private async countPhase(
    model: LifecycleModel,
    { name, kind }: Phase,
    terms: Terms,
    now: Date,
  ): Promise<PhaseCounts> {
    const collection = this.db.collection(model.collection)
    const [parked, due, oldestDueSeconds] = await Promise.all([
      countUpTo(collection, { phase: name, lockedAt: PARKED_AT }),
      kind === 'working' ? countUpTo(collection, dueFilter(name, terms, now)) : undefined,
      kind === 'working' ? oldestDue(collection, name, terms, now) : undefined,
    ])
    return { lifecycle: model.name, phase: name, due, oldestDueSeconds, parked }
  }
}

/** What is due. The bound spares an index that an array has made multikey a whole scan. @internal */
export function dueFilter(phase: string, terms: Terms, now: Date): Filter<Document> {
  return { phase, lockedAt: { $not: { $gte: dueBound(terms, now) } }, $expr: isDue(terms) }
}

const dueBound = (terms: Terms, now: Date) => new Date(now.getTime() - terms.lockTimeoutMs + BOUND_SLACK_MS)

function countUpTo(collection: Collection, filter: Filter<Document>): Promise<number> {
  return collection.countDocuments(filter, { hint: CLAIM_INDEX, limit: COUNT_LIMIT, maxTimeMS: MAX_TIME_MS })
}

/**
 * The first document of each range: the free ones in the order of `updatedAt` (due since they were unlocked; one that was
 * never claimed has none and doesn't tell its age unless it has `createdAt` or an ObjectId), the others in the order in
 * which their sleep or lease ended.
 */
async function oldestDue(collection: Collection, phase: string, terms: Terms, now: Date): Promise<number> {
  const justAfterEpoch = new Date(1)
  const bound = dueBound(terms, now)
  const ranges: [unknown, unknown][] = [
    [new MinKey(), justAfterEpoch],
    [justAfterEpoch, bound > justAfterEpoch ? bound : justAfterEpoch],
  ]
  const first = ([from, to]: [unknown, unknown]) =>
    collection
      .find(
        { phase, $expr: isDue(terms) },
        { projection: { lockedAt: 1, updatedAt: 1, createdAt: 1 }, ...AS_IT_STANDS },
      )
      .hint(CLAIM_INDEX)
      .min({ phase, lockedAt: from, updatedAt: new MinKey() })
      .max({ phase, lockedAt: to, updatedAt: new MinKey() })
      .limit(1)
      .maxTimeMS(MAX_TIME_MS)
      .toArray()
  const found = (await Promise.all(ranges.map(first))).flat()
  return Math.max(0, ...found.map((document) => (now.getTime() - dueSince(document, terms, now)) / 1_000))
}

function dueSince(document: Document, terms: Terms, now: Date): number {
  const { lockedAt, updatedAt, createdAt, _id } = document
  if (lockedAt instanceof Date && lockedAt.getTime() > 0) return lockedAt.getTime() + terms.lockTimeoutMs
  for (const date of [updatedAt, createdAt]) if (date instanceof Date) return date.getTime()
  return _id?._bsontype === 'ObjectId' ? _id.getTimestamp().getTime() : now.getTime()
}
