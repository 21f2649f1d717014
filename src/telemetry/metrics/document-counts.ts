import type { Collection, Db, Document, Filter } from 'mongodb'
import {
  type DueRange,
  dueBoundAt,
  dueRanges,
  dueWithin,
  isDue,
  leaseStateOf,
  notAfter,
  onClaimIndex,
  PARKED,
  readLockTimeouts,
  readOwnFields,
  type Terms,
  termsOf,
} from '../../lock/index.js'
import type { LifecycleModel, Phase } from '../../phases/index.js'

/** A count goes no further than this: a scrape must stay cheap however long a queue is. */
export const COUNT_LIMIT = 10_000
const MAX_TIME_MS = 5_000

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
      countUpTo(collection, { phase: name, ...PARKED }),
      kind === 'working' ? countUpTo(collection, dueFilter(name, terms, now)) : undefined,
      kind === 'working' ? oldestDue(collection, name, terms, now) : undefined,
    ])
    return { lifecycle: model.name, phase: name, due, oldestDueSeconds, parked }
  }
}

/** What is due. @internal */
export function dueFilter(phase: string, terms: Terms, now: Date): Filter<Document> {
  return { phase, ...notAfter(dueBoundAt(now, terms.lockTimeoutMs)), $expr: isDue(terms) }
}

function countUpTo(collection: Collection, filter: Filter<Document>): Promise<number> {
  return onClaimIndex(collection, (hint) =>
    collection.countDocuments(filter, { hint, limit: COUNT_LIMIT, maxTimeMS: MAX_TIME_MS }),
  )
}

/**
 * The first document of each range: the free ones in the order of `updatedAt` (due since they were unlocked; one that was
 * never claimed has none and doesn't tell its age unless it has `createdAt` or an ObjectId), the others in the order in
 * which their sleep or lease ended.
 */
async function oldestDue(collection: Collection, phase: string, terms: Terms, now: Date): Promise<number> {
  const { free, woken } = dueRanges(dueBoundAt(now, terms.lockTimeoutMs))
  const options = { projection: { lockedAt: 1, updatedAt: 1, createdAt: 1 }, limit: 1, maxTimeMS: MAX_TIME_MS }
  const found = await onClaimIndex(collection, (index) => {
    const first = (range: DueRange) =>
      readOwnFields((how) => dueWithin(collection, terms, phase, range, index, { ...options, ...how }).toArray())
    return Promise.all([first(free), first(woken)])
  })
  const ages = found.flat().map((document) => now.getTime() - dueSince(document, terms, now).getTime())
  return Math.max(0, ...ages) / 1_000
}

function dueSince(document: Document, terms: Terms, now: Date): Date {
  const state = leaseStateOf(document, terms, now)
  if (state.kind === 'asleep' || state.kind === 'held') return now // it has come due since
  const { updatedAt, createdAt, _id } = document
  const known = [state.kind === 'due' ? state.since : undefined, updatedAt, createdAt]
  const since = known.find((date): date is Date => date instanceof Date)
  return since ?? (_id?._bsontype === 'ObjectId' ? _id.getTimestamp() : now)
}
