export { type BucketDefinition, type BucketSettings, bucketDefinition } from './definition.js'
export {
  BUCKET_COLLECTIONS,
  type Bucket,
  type BucketPolicy,
  type BucketState,
  type BucketUsage,
  type PolicyStatement,
} from './documents.js'
export { TAGS as BUCKET_TAGS } from './held-bucket.js'
export { type BucketLifecycle, type BucketOptions, bucketLifecycle } from './lifecycle.js'
export {
  type BucketQuota,
  type CredentialsReference,
  type QuotaTarget,
  type ReadSecret,
  StorageAnswer,
  StorageForbidden,
  type StorageKeys,
  StorageRefused,
  type StorageSource,
  type StorageSpec,
  type StorageSpecInCode,
} from './storage/index.js'
