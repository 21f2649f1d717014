import type { VectorDriver } from './driver.js'
import { CollectionMissing, NotOurCollection } from './errors.js'
import { type QdrantFilter, qdrantFilter, writtenUpTo } from './qdrant-filter.js'
import { problemOf, statusOf } from './qdrant-problems.js'
import { type StoreOptions, storeOf } from './store-of.js'
import type { CollectionSpec, PointFilter, PointPayload, StoredPoint, VectorStore } from './vector-store.js'

/** The client of `@qdrant/js-client-rest`, by the methods used here. */
export interface QdrantLike {
  getCollection(collection: string): Promise<unknown>
  createCollection(collection: string, options: object): Promise<unknown>
  createPayloadIndex(collection: string, options: object): Promise<unknown>
  deleteCollection(collection: string): Promise<unknown>
  upsert(collection: string, options: object): Promise<unknown>
  delete(collection: string, options: object): Promise<unknown>
  query(collection: string, options: object): Promise<unknown>
  count(collection: string, options: object): Promise<unknown>
  scroll(collection: string, options: object): Promise<unknown>
}

/**
 * Vectors in Qdrant, 1.16 or later: older servers have no conditional upserts. It needs one client, which stays yours.
 * @example
 * ```ts
 * import { QdrantClient } from '@qdrant/js-client-rest'
 *
 * const store = qdrant(new QdrantClient({ url: 'http://qdrant:6333' }))
 * ```
 */
export function qdrant(client: QdrantLike, options: StoreOptions = {}): VectorStore {
  return storeOf(new QdrantDriver(client), options)
}

/** The fields that filters name. Qdrant finds points by an indexed field without reading them all. */
const INDEXES = { repository: 'keyword', path: 'keyword', folders: 'keyword', fence: 'integer' } as const
const METADATA = 'phaselock-repositories'
/** Answered when the write is applied, in one order for all replicas of a shard: else a condition could be judged on an old point. */
const APPLIED = { wait: true, ordering: 'strong' } as const

interface Info {
  readonly config: { readonly metadata?: Record<string, unknown> | null }
  readonly payload_schema?: Record<string, unknown> | null
}

interface Row {
  readonly id: string
  readonly payload: PointPayload & { readonly fence: number; readonly folders: readonly string[] }
}

class QdrantDriver implements VectorDriver {
  readonly kind = 'qdrant'
  constructor(private readonly client: QdrantLike) {}

  async describe(collection: string): Promise<CollectionSpec | undefined> {
    const info = await this.info(collection)
    if (!info) return undefined
    const spec = info.config.metadata?.[METADATA] as CollectionSpec | undefined
    if (!spec)
      throw new NotOurCollection(this.kind, collection, `no ${METADATA} in its metadata; Qdrant below 1.16 keeps none`)
    return { model: spec.model, dimensions: spec.dimensions, chunker: spec.chunker }
  }

  async create(collection: string, { model, dimensions, chunker }: CollectionSpec): Promise<void> {
    const before = await this.info(collection)
    const vectors = { size: dimensions, distance: 'Cosine' }
    const metadata = { [METADATA]: { model, dimensions, chunker } }
    if (!before)
      await this.ask(collection, () => this.client.createCollection(collection, { vectors, metadata })).catch(
        (error) => {
          // Another caller was first.
          if (statusOf(error.cause) !== 409) throw error
        },
      )
    for (const [field_name, field_schema] of Object.entries(INDEXES))
      if (!before?.payload_schema?.[field_name])
        await this.ask(collection, () =>
          this.client.createPayloadIndex(collection, { ...APPLIED, field_name, field_schema }),
        )
  }

  async drop(collection: string): Promise<void> {
    await this.ask(collection, () => this.client.deleteCollection(collection)).catch((error) => {
      if (!(error instanceof CollectionMissing)) throw error
    })
  }

  async upsert(...[collection, points, fence]: Parameters<VectorDriver['upsert']>): Promise<void> {
    const rows = points.map(({ id, vector, ...payload }) => ({
      id,
      vector: Array.from(vector),
      payload: { ...payload, folders: foldersOf(payload.path), fence },
    }))
    const options = { ...APPLIED, points: rows, update_filter: { must: [writtenUpTo(fence)] } }
    await this.ask(collection, () => this.client.upsert(collection, options))
  }

  async delete(...[collection, filter, fence]: Parameters<VectorDriver['delete']>): Promise<void> {
    const { must, must_not } = qdrantFilter(filter)
    const options = { ...APPLIED, filter: { must: [...must, writtenUpTo(fence)], must_not } }
    await this.ask(collection, () => this.client.delete(collection, options))
  }

  async query(...[collection, query, limit, filter]: Parameters<VectorDriver['query']>) {
    const options = { query, limit, filter: given(filter), with_payload: true }
    const { points } = (await this.ask(collection, () => this.client.query(collection, options))) as {
      points: (Row & { score: number })[]
    }
    return points.map((row) => ({ ...pointIn(row), score: row.score }))
  }

  async count(collection: string, filter: PointFilter): Promise<number> {
    const options = { exact: true, filter: given(filter) }
    const { count } = (await this.ask(collection, () => this.client.count(collection, options))) as { count: number }
    return count
  }

  /** Qdrant's offset is the first id of the next page. */
  async scroll(...[collection, filter, limit, after]: Parameters<VectorDriver['scroll']>) {
    const options = { limit, offset: after, filter: given(filter), with_payload: true }
    const page = (await this.ask(collection, () => this.client.scroll(collection, options))) as {
      points: Row[]
      next_page_offset?: string | null
    }
    return { points: page.points.map(pointIn), next: page.next_page_offset ?? undefined }
  }

  private async info(collection: string): Promise<Info | undefined> {
    try {
      return (await this.ask(collection, () => this.client.getCollection(collection))) as Info
    } catch (error) {
      if (error instanceof CollectionMissing) return undefined
      throw error
    }
  }

  private async ask(collection: string, call: () => Promise<unknown>): Promise<unknown> {
    try {
      return await call()
    } catch (error) {
      throw problemOf(error, this.kind, collection)
    }
  }
}

const given = (filter: PointFilter): QdrantFilter | undefined => {
  const all = qdrantFilter(filter)
  return all.must.length + all.must_not.length > 0 ? all : undefined
}

/** Every folder above a file, for `under`: `['src', 'src/a']` of `src/a/b.ts`. */
function foldersOf(path: string): string[] {
  const parts = path.split('/')
  return parts.slice(1).map((_, i) => parts.slice(0, i + 1).join('/'))
}

const pointIn = ({ id, payload: { folders: _, ...payload } }: Row): StoredPoint => ({ id, ...payload })
