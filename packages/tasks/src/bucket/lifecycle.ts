import { InvalidLifecycle } from 'phaselock'
import { type BindOptions, bindLifecycle } from 'phaselock/tasks'
import { creating } from './creating.js'
import { type BucketDefinition, type BucketSettings, bucketDefinition } from './definition.js'
import { deleting } from './deleting.js'
import { nameProblem } from './names.js'
import { type BucketQuota, Storages, type StoragesOptions } from './storage/index.js'
import { updating } from './updating.js'
import { BucketWork } from './work.js'

const SMALLEST_PAGE = 10
const LARGEST_PAGE = 1_000

export interface BucketOptions extends BucketSettings, BindOptions, Omit<StoragesOptions, 'db'> {
  /** The prefix of the names of buckets without a name of their own, for example `shop-`. Default: empty. */
  readonly namePrefix?: string | undefined
  /** Sets quotas on the storage. Default: buckets are measured, and closed to writing once they are full. */
  readonly quota?: BucketQuota | undefined
  /** The number of objects that one step lists, measures or deletes, 10 to 1000 (S3's limit for one request). Default 1000. */
  readonly pageSize?: number | undefined
}

export type BucketLifecycle = ReturnType<BucketDefinition['handle']>

/**
 * The bucket lifecycle with its handlers; see docs/tasks/bucket.md. Needs the package `@aws-sdk/client-s3`, loaded when a
 * bucket is first worked on.
 * @throws InvalidLifecycle for unknown settings and those out of range, InvalidDuration
 */
export function bucketLifecycle(options: BucketOptions): BucketLifecycle {
  const {
    db,
    storage,
    secrets,
    requestTimeout,
    quota,
    namePrefix = '',
    pageSize = LARGEST_PAGE,
    wrap,
    ...rest
  } = options
  const problems = optionProblems(namePrefix, pageSize)
  if (problems.length > 0) throw new InvalidLifecycle('bucket', problems)
  const settings: BucketSettings = { ...rest, reviewEvery: rest.reviewEvery ?? (quota ? 'never' : '10m') }
  const storages = new Storages({ db, storage, secrets, requestTimeout })
  const work = new BucketWork(db, storages, quota, namePrefix, pageSize)
  const bound = bucketDefinition(settings).handle({
    Creating: creating(work),
    Updating: updating(work),
    Deleting: deleting(work),
  })
  return bindLifecycle(bound, { db, wrap, plainNumbers: true })
}

function optionProblems(namePrefix: string, pageSize: number): string[] {
  const problems: string[] = []
  const wrongPrefix = namePrefix === '' ? undefined : nameProblem(`${namePrefix}x-0123456789abcdef`)
  if (wrongPrefix) problems.push(`namePrefix: ${wrongPrefix}`)
  if (!Number.isInteger(pageSize) || pageSize < SMALLEST_PAGE || pageSize > LARGEST_PAGE)
    problems.push(`pageSize: expected a whole number from ${SMALLEST_PAGE} to ${LARGEST_PAGE}, got ${pageSize}`)
  return problems
}
