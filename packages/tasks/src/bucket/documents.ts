/** The collections of this task kind. */
export const BUCKET_COLLECTIONS = {
  bucket: 'Bucket',
  /** The descriptions of storages, by region. */
  region: 'StorageRegion',
} as const

/** The state that a bucket's owner wants. `Updating`: changes to the document are to be applied; it becomes `Available`. */
export type BucketState = 'Available' | 'Updating' | 'Deleted'

/** A statement of a bucket policy. Without `Resource` it covers the bucket and all its objects. */
export interface PolicyStatement {
  readonly Sid?: string
  readonly Effect: 'Allow' | 'Deny'
  readonly Principal: '*' | Readonly<Record<string, string | readonly string[]>>
  /** One action, `s3:GetObject`, or several. */
  readonly Action: string | readonly string[]
  readonly Resource?: string | readonly string[]
  readonly Condition?: Readonly<Record<string, unknown>>
}

/** `private`: only the account's own rights; `public-read`: anyone may read objects, but not list them; else statements. */
export type BucketPolicy = 'private' | 'public-read' | readonly PolicyStatement[]

/** The amount of data in a bucket, all versions of its objects counted. */
export interface BucketUsage {
  readonly bytes: number
  readonly versions: number
}

/** The position of a pass over all pages of a bucket. */
interface Place {
  readonly key?: string
  readonly version?: string
}

/** A bucket. A writer needs only `{ phase: 'Creating' }`. */
export interface Bucket {
  readonly _id: unknown
  readonly state?: BucketState
  readonly phase?: string
  readonly lockedBy?: string
  /** The storage, as named in the option `storage`. Not changed once it is Created. */
  readonly region?: string
  /** Default: derived from its `_id`. Not changed once it is Created. */
  readonly name?: string
  /** Default `private`. */
  readonly policy?: BucketPolicy
  /** Bytes, all versions counted. Default: no limit. */
  readonly quotaBytes?: number | null
  /** True to keep former versions of objects. Default: the storage's own setting. */
  readonly versioning?: boolean | null

  // Set by its handlers:
  /** The bucket's name on the storage, and the region that it is in. */
  readonly bucket?: string | null
  readonly storedIn?: string | null
  /** Unique over all buckets of this database: the document with it may create the bucket. */
  readonly reserved?: string | null
  /** The tag of the bucket: only a bucket with this tag is this document's. */
  readonly mark?: string | null
  /** The latest measurement. */
  readonly usage?: BucketUsage | null
  /** True if nothing can be written because it exceeds its quota. */
  readonly overQuota?: boolean
  /** A measurement in progress. */
  readonly measuring?: (Place & BucketUsage) | null
  /** An emptying in progress that skips objects that can't be deleted: their number, and the reason. */
  readonly emptying?: (Place & { readonly kept: number; readonly why: string }) | null
}
