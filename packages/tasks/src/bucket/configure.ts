import type { Outcome, Step } from 'phaselock'
import type { Bucket } from './documents.js'
import type { HeldBucket, Ownership } from './held-bucket.js'
import { policyText } from './policy.js'
import { isNotImplemented, StorageAnswer } from './storage/index.js'
import type { BucketWork, Claim } from './work.js'

type Configuring = Outcome<'Created', Bucket>
type ConfiguringStep = Step<'Created', Bucket>
type Part = (work: BucketWork, bucket: HeldBucket, doc: Readonly<Bucket>, step: ConfiguringStep) => Promise<Configuring>

/** Brings a bucket in line with its document, one part per step: versioning, quota (measured page by page), policy. */
export async function configure(
  work: BucketWork,
  doc: Readonly<Bucket>,
  step: ConfiguringStep,
  claim: Claim,
): Promise<Configuring> {
  const bucket = await work.bucket(doc, step, claim)
  const owner = await bucket.ownership()
  if (owner !== 'ours') return step.park(`bucket ${claim.bucket} ${whyNotOurs(owner)}`)
  const parts: Readonly<Record<string, Part>> = { quota, policy }
  return (parts[step.name ?? ''] ?? versioning)(work, bucket, doc, step)
}

/** The owner of a bucket that isn't the document's, as the end of a sentence. */
export function whyNotOurs(owner: Ownership): string {
  if (typeof owner === 'object') return `belongs to ${owner.whose}`
  if (owner === 'absent') return 'is gone: somebody has removed it'
  if (owner === 'hidden') return 'is not readable: s3:GetBucketTagging is not allowed'
  return 'is not marked as made by Phaselock'
}

const versioning: Part = async (_work, bucket, doc, step) => {
  // The first step of each phase stamps: from here on a step with a lower fence is refused.
  await bucket.stamp()
  if (typeof doc.versioning === 'boolean') {
    const { sdk } = bucket.storage
    const VersioningConfiguration = { Status: doc.versioning ? 'Enabled' : 'Suspended' } as const
    const command = new sdk.PutBucketVersioningCommand({ Bucket: bucket.name, VersioningConfiguration })
    await bucket.requests.write('s3:PutBucketVersioning', command)
  }
  return step.again({ step: 'quota', set: { measuring: null } })
}

const NO_USAGE = { measuring: null, usage: null, overQuota: false } as const

const quota: Part = async (work, bucket, doc, step) => {
  const quotaBytes = doc.quotaBytes ?? undefined
  if (work.quota) {
    const { client } = bucket.storage
    const target = { bucket: bucket.name, region: doc.storedIn ?? undefined, client, signal: step.signal }
    bucket.requests.assertLeased()
    await work.quota.set(target, quotaBytes)
    return step.again({ step: 'policy', set: NO_USAGE })
  }
  if (quotaBytes === undefined) return step.again({ step: 'policy', set: NO_USAGE })
  const { bytes = 0, versions = 0, ...place } = doc.measuring ?? {}
  const page = await bucket.versions(place, work.pageSize)
  const usage = { bytes: bytes + page.bytes, versions: versions + page.objects.length }
  if (page.next) return step.again({ step: 'quota', set: { measuring: { ...page.next, ...usage } } })
  return step.again({ step: 'policy', set: { measuring: null, usage, overQuota: usage.bytes >= quotaBytes } })
}

const policy: Part = async (_work, bucket, doc, step) => {
  const { sdk } = bucket.storage
  const wanted = doc.policy ?? 'private'
  if (typeof wanted === 'string') await allowPublicPolicy(bucket, wanted === 'public-read')
  const Policy = policyText(bucket.name, wanted, doc.overQuota ?? false)
  await (Policy === undefined
    ? bucket.requests.write('s3:DeleteBucketPolicy', new sdk.DeleteBucketPolicyCommand({ Bucket: bucket.name }))
    : bucket.requests.write('s3:PutBucketPolicy', new sdk.PutBucketPolicyCommand({ Bucket: bucket.name, Policy })))
  return step.moveTo('Created')
}

/** Allows public policies if needed. AWS refuses them unless the bucket's settings allow them; other storages don't have these settings. */
async function allowPublicPolicy(bucket: HeldBucket, isPublic: boolean): Promise<void> {
  const { sdk } = bucket.storage
  const command = new sdk.PutPublicAccessBlockCommand({
    Bucket: bucket.name,
    PublicAccessBlockConfiguration: {
      BlockPublicAcls: true,
      IgnorePublicAcls: true,
      BlockPublicPolicy: !isPublic,
      RestrictPublicBuckets: !isPublic,
    },
  })
  await bucket.requests.write('s3:PutBucketPublicAccessBlock', command).catch((error) => {
    // A storage that takes an unknown operation for the creation of a bucket answers that the bucket exists.
    if (!isNotImplemented(error) && !(error instanceof StorageAnswer)) throw error
  })
}
