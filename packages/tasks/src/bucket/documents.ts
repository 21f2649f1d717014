/** The collections of this task kind. */
export const BUCKET_COLLECTIONS = {
  bucket: 'Bucket',
  /** How the storage of a region is reached. */
  region: 'StorageRegion',
} as const

/** What a bucket's owner wants. `Updating`: changes to the document are to be applied; it becomes `Available`. */
export type BucketState = 'Available' | 'Updating' | 'Deleted'

/** A statement of a bucket policy. Without `Resource` it covers the bucket and all its objects. */
export interface PolicyStatement {
  readonly Sid?: string
  readonly Effect: 'Allow' | 'Deny'
  readonly Principal: '*' | Readonly<Record<string, string | readonly string[]>>
  /** `s3:GetObject`, or several. */
  readonly Action: string | readonly string[]
  readonly Resource?: string | readonly string[]
  readonly Condition?: Readonly<Record<string, unknown>>
}

/** `private`: only the account's own rights; `public-read`: anybody may read objects, but not list them; else statements. */
export type BucketPolicy = 'private' | 'public-read' | readonly PolicyStatement[]

/** How much is in a bucket, all versions of its objects counted. */
export interface BucketUsage {
  readonly bytes: number
  readonly versions: number
}

/** How far a pass over all pages of a bucket has got. */
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
  /** Which storage it is in, as in the option `storage`. Not changed once it is Created. */
  readonly region?: string
  /** Default: made from its `_id`. Not changed once it is Created. */
  readonly name?: string
  /** Default `private`. */
  readonly policy?: BucketPolicy
  /** Bytes, all versions counted. Default: no limit. */
  readonly quotaBytes?: number | null
  /** Whether former versions of objects are kept. Default: the storage's own. */
  readonly versioning?: boolean | null

  // Set by its handlers:
  /** The bucket's name on the storage, and the region that it is in. */
  readonly bucket?: string | null
  readonly storedIn?: string | null
  /** Unique over all buckets of this database: the document with it may make the bucket. */
  readonly reserved?: string | null
  /** What the bucket is tagged with: only a bucket with this tag is this document's. */
  readonly mark?: string | null
  /** The latest measurement. */
  readonly usage?: BucketUsage | null
  /** Whether nothing can be written because it exceeds its quota. */
  readonly overQuota?: boolean
  /** A measurement in progress. */
  readonly measuring?: (Place & BucketUsage) | null
  /** An emptying that skips what can't be deleted: how many, and why. */
  readonly emptying?: (Place & { readonly kept: number; readonly why: string }) | null
}
