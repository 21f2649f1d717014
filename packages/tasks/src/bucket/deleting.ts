import { type Handler, type Outcome, type Step, Unavailable } from 'phaselock'
import type { Bucket } from './documents.js'
import type { HeldBucket } from './held-bucket.js'
import { closedPolicyText } from './policy.js'
import { StorageForbidden, StorageRefused } from './storage/index.js'
import { type BucketWork, claimOf, parkRefused } from './work.js'

/** The number of uploads that one step aborts: each is a request. */
const UPLOADS = 100
const PASSING = ['InternalError', 'SlowDown', 'ServiceUnavailable', 'RequestTimeout']

type Deleting = Outcome<'Deleted', Bucket>
type DeletingStep = Step<'Deleted', Bucket>
type Part = (work: BucketWork, bucket: HeldBucket, doc: Readonly<Bucket>, step: DeletingStep) => Promise<Deleting>

/**
 * Empties the bucket page by page, one page per step, removes it and waits until it is gone. It begins from any phase, and
 * removes whatever exists. Each step first checks the owner of the bucket: one that isn't the document's is left alone.
 */
export function deleting(work: BucketWork): Handler<'Deleted', Bucket> {
  const parts: Readonly<Record<string, Part>> = { close, objects, remove, gone }
  return parkRefused(async (doc, step) => {
    const claim = claimOf(doc)
    if (!claim) return step.moveTo('Deleted', { set: { reserved: null } })
    const bucket = await work.bucket(doc, step, claim)
    const owner = await bucket.ownership()
    if (owner === 'hidden') throw new StorageForbidden(bucket.requests.request('s3:GetBucketTagging'), 'Access Denied')
    // Created for this document, but without its mark: it hasn't been used yet.
    const isUnmarked = owner === 'unmarked' && (await bucket.isEmpty())
    if (isUnmarked) await bucket.stamp()
    if (owner !== 'ours' && !isUnmarked) return step.moveTo('Deleted', { set: { reserved: null, emptying: null } })
    return (parts[step.name ?? ''] ?? uploads)(work, bucket, doc, step)
  })
}

/** Aborts uploads. The first step stamps: from here on a step with a lower fence is refused. */
const uploads: Part = async (_work, bucket, _doc, step) => {
  if (step.name === undefined) await bucket.stamp()
  const found = await bucket.uploads(UPLOADS)
  for (const upload of found) await bucket.abort(upload)
  return step.again({ step: found.length === 0 ? 'objects' : 'uploads' })
}

/**
 * Deletes one page. Deleted objects aren't listed again, so each page is the first one, until an object can't be deleted (it is
 * locked, or the right is missing). From then on pages skip it, and the next round begins later.
 */
const objects: Part = async (work, bucket, doc, step) => {
  const { kept = 0, why = '', ...place } = doc.emptying ?? {}
  const page = await bucket.versions(place, work.pageSize)
  const failed = page.objects.length === 0 ? [] : await bucket.delete(page)
  const passing = failed.find(({ code }) => PASSING.includes(code))
  if (passing) throw new Unavailable(`storage of ${bucket.storage.label}: s3:DeleteObject: ${passing.message}`)
  const first = failed[0]
  const left = {
    kept: kept + failed.length,
    why: why || (first ? `object ${first.key}: ${first.code}: ${first.message}` : ''),
  }
  if (page.next)
    return step.again({ step: 'objects', set: { emptying: left.kept > 0 ? { ...page.next, ...left } : null } })
  if (left.kept === 0) return step.again({ step: 'remove', set: { emptying: null } })
  const what = `${left.kept} objects of bucket ${bucket.name} that can't be deleted`
  return step.wait(`${what}, the first one: ${left.why}`, { on: 'objects', set: { emptying: null } })
}

const remove: Part = async (_work, bucket, _doc, step) => {
  if (!(await bucket.isEmpty())) return step.again({ step: 'close' })
  if (await bucket.remove()) return step.again({ step: 'gone' })
  return step.wait(`bucket ${bucket.name} to be empty: somebody writes to it while it is being emptied`, {
    on: 'objects',
  })
}

/** Refuses writes while the bucket is being emptied, because a client keeps writing. */
const close: Part = async (_work, bucket, _doc, step) => {
  const { sdk } = bucket.storage
  const Policy = closedPolicyText(bucket.name)
  const command = new sdk.PutBucketPolicyCommand({ Bucket: bucket.name, Policy })
  await bucket.requests.write('s3:PutBucketPolicy', command).catch((error) => {
    // It continues without the policy, and waits until the client stops writing.
    if (!(error instanceof StorageRefused) && !(error instanceof StorageForbidden)) throw error
  })
  return step.again({ step: 'uploads' })
}

/** Waits until the bucket is gone: then this step is no longer reached, see `deleting`. */
const gone: Part = async (_work, bucket, _doc, step) => step.wait(`bucket ${bucket.name} to be gone`, { on: 'removal' })
