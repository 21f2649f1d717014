import type { Collection, Db, Document, Filter } from 'mongodb'
import {
  type DueRange,
  dueBoundAt,
  dueRanges,
  dueSince,
  dueSinceFields,
  dueWithin,
  isAsking,
  isDue,
  isInForce,
  isRemovedPhase,
  LIFECYCLES_COLLECTION,
  leaseStateExpression,
  leaseStateOf,
  notAfter,
  onClaimIndex,
  PARKED,
  Paused,
  phasesIn,
  readLockTimeouts,
  readOwnFields,
  removedPhase,
  type Terms,
  termsOf,
} from '../../lock/index.js'
import type { LifecycleModel } from '../../phases/index.js'
import { inForceIn, type System } from '../system/system.js'
import { multikeyFields } from './rebuild-index.js'

/** The limit of every count: counting must stay cheap however long a queue is. */
export const COUNT_LIMIT = 10_000

/** The documents of one phase, counted by condition. Each number is at most {@link COUNT_LIMIT}. */
export interface PhaseCount {
  readonly lifecycle: string
  /**
   * The phase; it may be one that the lifecycle doesn't know. `(an array)`: documents whose `phase` is one, each counted once. `(missing)`:
   * without one, or null. `(not a string)`: of another type. `(removed)`: documents that are removed, and deleted once their callbacks are
   * delivered.
   */
  readonly phase: string
  readonly kind: 'working' | 'resting' | 'final' | 'removed' | 'unknown'
  /** True if it is paused, alone or with all of its lifecycle. */
  readonly paused: boolean
  readonly documents: number
  /** True if there are more documents than that. */
  readonly more: boolean
  readonly due: number
  readonly held: number
  readonly sleeping: number
  /** The number of sleeping ones that wait for an answer. */
  readonly asking: number
  readonly parked: number
}

/** The documents of one phase that wait for a replica, or for a person. */
export interface Waiting {
  readonly lifecycle: string
  readonly phase: string
  /** The due documents of a working phase, at most {@link COUNT_LIMIT}; 0 while it is paused. Undefined for other phases. */
  readonly due: number | undefined
  /**
   * The time since the oldest due document of a working phase became due, in seconds; 0 if there is no due document, or the phase is
   * paused.
   */
  readonly oldestDueSeconds: number | undefined
  /**
   * The number of due documents that don't record when they became due, and count in no age; at most 1,000. Replicas date them within
   * seconds, unless they refuse the write.
   */
  readonly undated: number | undefined
  /** The number of parked documents, at most {@link COUNT_LIMIT}. */
  readonly parked: number
}

const REMOVED = '(removed)'
const ARRAY = '(an array)'
const IS_ARRAY: Filter<Document> = { phase: { $type: 'array' } }
const NOT_ARRAY = { $not: { $type: 'array' } } as const
const NONE = '(missing)'
const IS_NONE: Filter<Document> = { phase: { $eq: null, ...NOT_ARRAY } }
const OTHER = '(not a string)'
const IS_OTHER: Filter<Document> = { phase: { $ne: null, $not: { $type: ['string', 'array'] } } }
/**
 * A filter for the documents of a phase. A query for a value also matches arrays that hold it, but such a document is in none of these
 * phases.
 */
export const inPhase = (phase: string): Filter<Document> => ({ phase: { $eq: phase, ...NOT_ARRAY } })

/**
 * Counts the documents of each phase by condition, in the order of the lifecycles and their phases.
 * @example await countPhases(system) // [{ lifecycle: 'order', phase: 'Creating', documents: 4, due: 1, held: 1, ... }, ...]
 */
export async function countPhases({ db, models }: System): Promise<PhaseCount[]> {
  const inForce = await inForceIn(db, models)
  const counts = await Promise.all(
    models.map(async (model) => {
      const collection = db.collection(model.collection)
      const found = await phasesIn(collection)
      const phases = [...model.phases.keys(), ...(await strayPhases(db, model, found))]
      const places = phases.map((phase): [string, Filter<Document>] => [phase, inPhase(phase)])
      if (found.includes(removedPhase(model.name))) places.push([REMOVED, inPhase(removedPhase(model.name))])
      places.push([NONE, IS_NONE])
      // This reads the whole index.
      if (found.some((phase) => phase !== null && typeof phase !== 'string')) places.push([OTHER, IS_OTHER])
      if (await mayHoldArrays(collection)) places.push([ARRAY, IS_ARRAY])
      const { terms, pauses } = inForce(model)
      const paused = new Paused(pauses)
      const all = places.map(async ([phase, where]) => ({
        ...(await countPhase(collection, model, terms, phase, where)),
        paused: model.phases.has(phase) && paused.has(phase),
      }))
      return (await Promise.all(all)).filter(({ kind, documents }) => kind !== 'unknown' || documents > 0)
    }),
  )
  return counts.flat()
}

/** The phases of documents that aren't among the known ones, including those found only in an array. */
export async function unknownPhases(collection: Collection, known: { has(phase: string): boolean }): Promise<string[]> {
  return unknownAmong(await phasesIn(collection), known)
}

const unknownAmong = (phases: readonly unknown[], known: { has(phase: string): boolean }): string[] =>
  phases.filter((phase): phase is string => typeof phase === 'string' && !known.has(phase))

/**
 * True if any `phase` may be an array, judged by the claim index. If none can be, no search for arrays is made, because it reads the whole
 * index.
 */
const mayHoldArrays = (collection: Collection): Promise<boolean> =>
  multikeyFields(collection).then(
    (fields) => fields.includes('phase'),
    () => true,
  )

async function countPhase(
  collection: Collection,
  model: LifecycleModel,
  terms: Terms,
  phase: string,
  where: Filter<Document>,
): Promise<Omit<PhaseCount, 'paused'>> {
  const rows = await collection
    .aggregate<{ _id: string; n: number; asking: number }>([
      { $match: where },
      { $limit: COUNT_LIMIT + 1 },
      {
        $group: {
          _id: leaseStateExpression(terms),
          n: { $sum: 1 },
          asking: { $sum: { $cond: [isAsking(terms), 1, 0] } },
        },
      },
    ])
    .toArray()
  const of = (state: string) => Math.min(rows.find(({ _id }) => _id === state)?.n ?? 0, COUNT_LIMIT)
  const documents = rows.reduce((sum, { n }) => sum + n, 0)
  return {
    lifecycle: model.name,
    phase,
    kind: model.phases.get(phase)?.kind ?? (phase === REMOVED ? 'removed' : 'unknown'),
    documents: Math.min(documents, COUNT_LIMIT),
    more: documents > COUNT_LIMIT,
    due: of('due'),
    held: of('held'),
    sleeping: of('asleep'),
    asking: rows.find(({ _id }) => _id === 'asleep')?.asking ?? 0,
    parked: of('parked'),
  }
}

/** A time limit, so that a slow database doesn't hold up a caller that asks every few seconds. */
const MAX_TIME_MS = 5_000

/**
 * Counts due and parked documents, for metrics. Every query walks a bounded range of the claim index: at most one key for each document
 * counted. So it reads 1 key if nothing is due, even beside 100,000 sleeping documents. A lifecycle that no replica has registered is left
 * out: there is no index to count on.
 * @example await countWaiting(system) // [{ lifecycle: 'order', phase: 'Creating', due: 2, oldestDueSeconds: 0.4, undated: 0, parked: 0 }, ...]
 * @throws the database's own errors, including MissingIndex
 */
export async function countWaiting({ db, models }: Pick<System, 'db' | 'models'>): Promise<Waiting[]> {
  const names = models.map(({ name }) => name)
  const inForce = await readLockTimeouts(db, names, { maxTimeMS: MAX_TIME_MS })
  const counts = models.flatMap((model) => {
    const found = inForce.get(model.name)
    if (!found) return []
    const terms = termsOf(found.dueMs, { progress: model.settings.progress })
    const paused = new Paused(found.pauses.filter((pause) => isInForce(pause, found.now)))
    const phases = [...model.phases.values()].filter(({ kind }) => kind !== 'final')
    const elsewhere = parkedElsewhere(db, model)
    const own = phases.map(async ({ name: phase, kind }): Promise<Waiting> => {
      const collection = db.collection(model.collection)
      const isCounted = kind === 'working' && !paused.has(phase)
      const none = kind === 'working' ? 0 : undefined
      const [parked, due] = await Promise.all([
        countUpTo(collection, { ...inPhase(phase), ...PARKED }),
        isCounted ? countUpTo(collection, dueFilter(phase, terms, found.now)) : none,
      ])
      const age = due ? await ageOfDue(collection, phase, terms, found.now) : { oldestSeconds: none, undated: none }
      return { lifecycle: model.name, phase, due, oldestDueSeconds: age.oldestSeconds, undated: age.undated, parked }
    })
    return [...own.map(async (one) => [await one]), elsewhere]
  })
  return (await Promise.all(counts)).flat()
}

/**
 * Counts the parked documents in final phases, and in those that this version lacks: no other document in these phases waits for a replica
 * or a person.
 */
async function parkedElsewhere(db: Db, model: LifecycleModel): Promise<Waiting[]> {
  const collection = db.collection(model.collection)
  const found = await phasesIn(collection)
  const final = [...model.phases.values()].filter(({ name, kind }) => kind === 'final' && found.includes(name))
  const phases = [...final.map(({ name }) => name), ...(await strayPhases(db, model, found))]
  const counts = phases.map(async (phase) => {
    const parked = await countUpTo(collection, { ...inPhase(phase), ...PARKED })
    return { lifecycle: model.name, phase, due: undefined, oldestDueSeconds: undefined, undated: undefined, parked }
  })
  return (await Promise.all(counts)).filter(({ parked }) => parked > 0)
}

/** The phases in a lifecycle's collection that belong neither to it, nor to another lifecycle there, nor to removed documents. */
export async function strayPhases(db: Db, model: LifecycleModel, found?: readonly unknown[]): Promise<string[]> {
  const unknown = unknownAmong(found ?? (await phasesIn(db.collection(model.collection))), model.phases)
  const stray = unknown.filter((phase) => !isRemovedPhase(phase))
  if (stray.length === 0) return []
  const others = { collection: model.collection, _id: { $ne: model.name as never } }
  const known = await db.collection(LIFECYCLES_COLLECTION).distinct('phases', others)
  return stray.filter((phase) => !known.includes(phase))
}

/** A filter for due documents. @internal */
export function dueFilter(phase: string, terms: Terms, now: Date): Filter<Document> {
  return { ...inPhase(phase), ...notAfter(dueBoundAt(now, terms.lockTimeoutMs)), $expr: isDue(terms) }
}

function countUpTo(collection: Collection, filter: Filter<Document>): Promise<number> {
  return onClaimIndex(collection, (hint) =>
    collection.countDocuments(filter, { hint, limit: COUNT_LIMIT, maxTimeMS: MAX_TIME_MS }),
  )
}

/** The maximum number of documents without `updatedAt` that are read: the index doesn't order them by age. */
const MOST_FRESH = 1_000

/**
 * Reads the first document of each range that the index orders by age: free ones by `updatedAt`, the others by the end of their sleep or
 * lease. The fresh ones, without `updatedAt`, have no such order: of these it takes the oldest of the first thousand.
 */
async function ageOfDue(
  collection: Collection,
  phase: string,
  terms: Terms,
  now: Date,
): Promise<{ oldestSeconds: number; undated: number }> {
  const { fresh, released, woken } = dueRanges(dueBoundAt(now, terms.lockTimeoutMs))
  const options = { projection: dueSinceFields(terms), maxTimeMS: MAX_TIME_MS, others: inPhase(phase) }
  const found = await onClaimIndex(collection, (index) => {
    const first = (range: DueRange, limit: number) =>
      readOwnFields((how) => dueWithin(collection, terms, phase, range, index, { ...options, ...how, limit }).toArray())
    return Promise.all([first(fresh, MOST_FRESH), first(released, 1), first(woken, 1)])
  })
  const since = found
    .flat()
    .map((document) => ({ isDue: isDueNow(document, terms, now), at: dueSince(document, terms, now) }))
  const ages = since.flatMap(({ at }) => (at ? [now.getTime() - at.getTime()] : []))
  return {
    oldestSeconds: Math.max(0, ...ages) / 1_000,
    undated: since.filter(({ isDue, at }) => isDue && !at).length,
  }
}

/** True if it was due at `now`; some have become due since, or are no longer due. */
const isDueNow = (document: Document, terms: Terms, now: Date): boolean =>
  leaseStateOf(document, terms, now).kind === 'due'
