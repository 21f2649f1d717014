export {
  CollectionMismatch,
  CollectionMissing,
  InvalidCollection,
  InvalidFilter,
  NotOurCollection,
  VectorStoreUnavailable,
  WrongVector,
} from './errors.js'
export { pointId } from './point-id.js'
export type {
  CallOptions,
  CollectionSpec,
  Hit,
  Point,
  PointFilter,
  PointPayload,
  StoredPoint,
  Vector,
  VectorStore,
  WriteOptions,
} from './vector-store.js'
