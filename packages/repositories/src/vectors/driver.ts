import type { CollectionSpec, Hit, Point, PointFilter, StoredPoint } from './vector-store.js'

/**
 * A database without the checks that all have in common: `storeOf` makes a VectorStore of it. Arguments are valid, lists of points aren't empty,
 * and a call that takes too long is no longer waited for, so a driver needs no timeout.
 */
export interface VectorDriver {
  readonly kind: string
  describe(collection: string): Promise<CollectionSpec | undefined>
  /** Makes the collection, and whatever of it is missing. Only called where there is none, or one of the same spec. */
  create(collection: string, spec: CollectionSpec): Promise<void>
  drop(collection: string): Promise<void>
  /** The vectors have the same dimension, and finite numbers only. */
  upsert(collection: string, points: readonly Point[], fence: number): Promise<void>
  delete(collection: string, filter: PointFilter, fence: number): Promise<void>
  query(collection: string, vector: readonly number[], limit: number, filter: PointFilter): Promise<readonly Hit[]>
  count(collection: string, filter: PointFilter): Promise<number>
  scroll(
    collection: string,
    filter: PointFilter,
    limit: number,
    after: string | undefined,
  ): Promise<{ readonly points: readonly StoredPoint[]; readonly next: string | undefined }>
}
