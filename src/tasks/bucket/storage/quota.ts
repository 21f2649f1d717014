import type { S3Client } from '@aws-sdk/client-s3'

/** What a quota is set on. */
export interface QuotaTarget {
  readonly bucket: string
  /** As the document names it. */
  readonly region: string | undefined
  readonly client: S3Client
  /** Aborts when the step may not go on: pass it on. */
  readonly signal: AbortSignal
}

/**
 * Quotas of a storage. S3 has no operation for them; storages that know quotas have one of their own (MinIO's and Ceph's
 * administration interfaces). Throw `Unavailable` where it is away; any other error is an attempt.
 */
export interface BucketQuota {
  /** Limits a bucket, or takes its limit away (`undefined`). Repeated, it changes nothing. */
  set(target: QuotaTarget, quotaBytes: number | undefined): Promise<void>
}
