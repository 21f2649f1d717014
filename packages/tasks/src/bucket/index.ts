export { type BucketDefinition, bucketDefinition } from './definition.js'
export { BUCKET_COLLECTIONS, type Bucket } from './documents.js'
export { TAGS as BUCKET_TAGS } from './held-bucket.js'
export { type BucketLifecycle, type BucketOptions, bucketLifecycle } from './lifecycle.js'
export {
  type ReadSecret,
  StorageAnswer,
  StorageForbidden,
  StorageRefused,
  type StorageSource,
  type StorageSpec,
} from './storage/index.js'
