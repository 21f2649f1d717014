import type { S3Client } from '@aws-sdk/client-s3'

/** The bucket that a quota is set on. */
export interface QuotaTarget {
  readonly bucket: string
  /** The region as in the document. */
  readonly region: string | undefined
  readonly client: S3Client
  /** Aborts when the step may not continue: pass it on. */
  readonly signal: AbortSignal
}

/**
 * Quotas of a storage. S3 has no operation for them; storages with quotas use their own (MinIO's and Ceph's
 * administration interfaces). Throw `Unavailable` if it can't be reached; any other error uses an attempt.
 */
export interface BucketQuota {
  /** Limits a bucket, or removes its limit (`undefined`). A repeated call changes nothing. */
  set(target: QuotaTarget, quotaBytes: number | undefined): Promise<void>
}
