export {
  CollectionMismatch,
  CollectionMissing,
  InvalidCollection,
  InvalidFilter,
  NotOurCollection,
  VectorStoreRefused,
  VectorStoreUnavailable,
  WrongVector,
} from './errors.js'
export { memory } from './memory.js'
export { type PgvectorOptions, type PoolLike, pgvector } from './pgvector.js'
export { pointId } from './point-id.js'
export { type QdrantLike, qdrant } from './qdrant.js'
export type { StoreOptions } from './store-of.js'
export type {
  CallOptions,
  CollectionSpec,
  Hit,
  Point,
  PointFilter,
  PointPayload,
  PointWriteOptions,
  StoredPoint,
  Vector,
  VectorStore,
} from './vector-store.js'
