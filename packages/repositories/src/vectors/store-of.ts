import type { Duration } from 'phaselock'
import { durationMs } from 'phaselock/tasks'
import { anything, type Checks, checkOptions } from '../options.js'
import {
  checkedFilter,
  checkFence,
  checkLimit,
  checkName,
  checkPoints,
  checkSpec,
  checkVector,
  isAll,
  isNone,
} from './checks.js'
import type { VectorDriver } from './driver.js'
import { CollectionMismatch, CollectionMissing, InvalidFilter, VectorStoreUnavailable } from './errors.js'
import type { CallOptions, CollectionSpec, VectorStore } from './vector-store.js'

/** Options that all stores have. */
export interface StoreOptions {
  /** The longest wait for an answer; then the call throws `VectorStoreUnavailable`. Default '30s'. */
  readonly answerWithin?: Duration | undefined
}

const OPTIONS: Checks<StoreOptions> = { answerWithin: anything }

/** The points of one request: 100 vectors of 3,072 numbers are 6 MB as JSON, and Qdrant takes 32 MB. */
const POINTS_A_REQUEST = 100

/** Adds to a driver what is the same for all: arguments are checked, calls end with their signal or when no answer comes. */
export function storeOf(driver: VectorDriver, options: StoreOptions): VectorStore {
  const { answerWithin = '30s' } = checkOptions(driver.kind, OPTIONS, options)
  const withinMs = durationMs(answerWithin, 'answerWithin')

  /** Lets go of a call that takes too long. Its writes may still happen: the fence is what keeps late ones out. */
  const bounded = async <T>(
    collection: string,
    signal: AbortSignal | undefined,
    call: () => Promise<T>,
  ): Promise<T> => {
    checkName(collection)
    signal?.throwIfAborted()
    const { promise: ended, reject } = Promise.withResolvers<never>()
    const silent = () => reject(new VectorStoreUnavailable(driver.kind, `no answer within ${answerWithin}`))
    const timer = setTimeout(silent, withinMs)
    const onAbort = () => reject(signal!.reason)
    signal?.addEventListener('abort', onAbort, { once: true })
    try {
      const answer = await Promise.race([call(), ended])
      signal?.throwIfAborted()
      return answer
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
    }
  }

  /** The answer for a filter that matches nothing: a collection that is missing is reported all the same. */
  const nothing = async <T>(collection: string, answer: T): Promise<T> => {
    if (!(await driver.describe(collection))) throw new CollectionMissing(driver.kind, collection)
    return answer
  }

  return {
    kind: driver.kind,

    describe: (collection, { signal }: CallOptions = {}) =>
      bounded(collection, signal, () => driver.describe(collection)),

    async create(collection, spec, { signal } = {}) {
      checkName(collection)
      checkSpec(collection, spec)
      const compare = (found: CollectionSpec | undefined) => {
        if (found && !isSame(found, spec)) throw new CollectionMismatch(collection, spec, found)
      }
      await bounded(collection, signal, async () => {
        // Before anything is written: a collection that isn't ours isn't touched. And after it: two callers may have raced.
        compare(await driver.describe(collection))
        await driver.create(collection, spec)
        compare(await driver.describe(collection))
      })
    },

    drop: (collection, { signal } = {}) => bounded(collection, signal, () => driver.drop(collection)),

    async upsert(collection, points, { fence, signal }) {
      checkFence(fence)
      checkPoints(points)
      // Of equal ids the last one counts; databases disagree on two in one request.
      const distinct = [...new Map(points.map((point) => [point.id, point])).values()]
      // One order for all writers: two that write the same points can't lock each other out.
      distinct.sort((a, b) => (a.id < b.id ? -1 : 1))
      for (let from = 0; from < distinct.length; from += POINTS_A_REQUEST) {
        const some = distinct.slice(from, from + POINTS_A_REQUEST)
        await bounded(collection, signal, () => driver.upsert(collection, some, fence))
      }
    },

    async delete(collection, given, { fence, signal }) {
      checkFence(fence)
      const filter = checkedFilter(given)
      if (isAll(filter))
        throw new InvalidFilter('delete: expected a filter that names a repository, paths or ids; `drop` deletes all')
      await bounded(collection, signal, () =>
        isNone(filter) ? nothing(collection, undefined) : driver.delete(collection, filter, fence),
      )
    },

    async query(collection, vector, { signal, limit = 10, filter: given = {} } = {}) {
      checkLimit(limit, 1_000)
      checkVector(vector, 'query')
      const filter = checkedFilter(given)
      return await bounded(collection, signal, () =>
        isNone(filter) ? nothing(collection, []) : driver.query(collection, Array.from(vector), limit, filter),
      )
    },

    async count(collection, given = {}, { signal } = {}) {
      const filter = checkedFilter(given)
      return await bounded(collection, signal, () =>
        isNone(filter) ? nothing(collection, 0) : driver.count(collection, filter),
      )
    },

    async scroll(collection, given = {}, { signal, after, limit = 1_000 } = {}) {
      checkLimit(limit, 10_000)
      const filter = checkedFilter(given)
      return await bounded(collection, signal, () =>
        isNone(filter)
          ? nothing(collection, { points: [], next: undefined })
          : driver.scroll(collection, filter, limit, after),
      )
    },
  }
}

const isSame = (a: CollectionSpec, b: CollectionSpec) =>
  a.model === b.model && a.dimensions === b.dimensions && a.chunker === b.chunker
