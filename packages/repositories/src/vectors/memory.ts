import type { VectorDriver } from './driver.js'
import { CollectionMissing, WrongVector } from './errors.js'
import { type StoreOptions, storeOf } from './store-of.js'
import type { CollectionSpec, PointFilter, StoredPoint, VectorStore } from './vector-store.js'

interface Kept {
  readonly point: StoredPoint
  readonly vector: Float32Array
}

interface Collection {
  readonly spec: CollectionSpec
  readonly points: Map<string, Kept>
}

/**
 * Vectors in the memory of this process, for tests and for an app of one replica that may sync again after a restart. A query looks at every point.
 * @example
 * ```ts
 * const store = memory()
 * await store.create('code', { model: 'm', dimensions: 256, chunker: 'lines:7000/1500' })
 * ```
 */
export function memory(options: StoreOptions = {}): VectorStore {
  return storeOf(new MemoryDriver(), options)
}

class MemoryDriver implements VectorDriver {
  readonly kind = 'memory'
  private readonly collections = new Map<string, Collection>()

  async describe(collection: string): Promise<CollectionSpec | undefined> {
    return this.collections.get(collection)?.spec
  }

  async create(collection: string, { model, dimensions, chunker }: CollectionSpec): Promise<void> {
    if (!this.collections.has(collection))
      this.collections.set(collection, { spec: { model, dimensions, chunker }, points: new Map() })
  }

  async drop(collection: string): Promise<void> {
    this.collections.delete(collection)
  }

  async upsert(...[collection, points, fence]: Parameters<VectorDriver['upsert']>): Promise<void> {
    const kept = this.of(collection, points[0]?.vector.length)
    for (const { vector, ...point } of points) {
      const before = kept.get(point.id)
      if (!before || before.point.fence <= fence)
        kept.set(point.id, { point: { ...point, fence }, vector: Float32Array.from(vector) })
    }
  }

  async delete(...[collection, filter, fence]: Parameters<VectorDriver['delete']>): Promise<void> {
    const kept = this.of(collection)
    const isMeant = meantBy(filter)
    for (const { point } of kept.values()) if (point.fence <= fence && isMeant(point)) kept.delete(point.id)
  }

  async query(...[collection, vector, limit, filter]: Parameters<VectorDriver['query']>) {
    const kept = this.of(collection, vector.length)
    const isMeant = meantBy(filter)
    const hits = [...kept.values()]
      .filter(({ point }) => isMeant(point))
      .map((found) => ({ ...found.point, score: cosine(vector, found.vector) }))
    return hits.sort((a, b) => b.score - a.score || (a.id < b.id ? -1 : 1)).slice(0, limit)
  }

  async count(collection: string, filter: PointFilter): Promise<number> {
    return this.meant(collection, filter).length
  }

  async scroll(...[collection, filter, limit, after]: Parameters<VectorDriver['scroll']>) {
    const rest = this.meant(collection, filter)
      .filter(({ id }) => after === undefined || id > after)
      .sort((a, b) => (a.id < b.id ? -1 : 1))
    const points = rest.slice(0, limit)
    return { points, next: rest.length > limit ? points.at(-1)!.id : undefined }
  }

  private meant(collection: string, filter: PointFilter): StoredPoint[] {
    return [...this.of(collection).values()].map(({ point }) => point).filter(meantBy(filter))
  }

  private of(collection: string, dimensions?: number): Map<string, Kept> {
    const found = this.collections.get(collection)
    if (!found) throw new CollectionMissing(this.kind, collection)
    if (dimensions !== undefined && dimensions !== found.spec.dimensions)
      throw new WrongVector(
        `collection '${collection}': expected vectors of ${found.spec.dimensions} numbers, got ${dimensions}`,
      )
    return found.points
  }
}

/** A test of points; each takes the same time, however many paths and ids the filter has. */
function meantBy({ repository, paths, under, ids, exceptIds }: PointFilter): (point: StoredPoint) => boolean {
  const [ofPaths, ofIds, except] = [paths, ids, exceptIds].map((names) => names && new Set(names))
  return (point) =>
    (repository === undefined || point.repository === repository) &&
    (ofPaths?.has(point.path) ?? true) &&
    (under === undefined || point.path === under || point.path.startsWith(`${under}/`)) &&
    (ofIds?.has(point.id) ?? true) &&
    !except?.has(point.id)
}

/** 0 where one of them has no direction. */
function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let [both, ofA, ofB] = [0, 0, 0]
  for (let i = 0; i < a.length; i += 1) {
    both += a[i]! * b[i]!
    ofA += a[i]! ** 2
    ofB += b[i]! ** 2
  }
  return both / Math.sqrt(ofA * ofB) || 0
}
