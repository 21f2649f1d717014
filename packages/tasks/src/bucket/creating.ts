import { randomUUID } from 'node:crypto'
import type { Handler, Outcome, Step } from 'phaselock'
import { idText, isDuplicateKey } from 'phaselock/tasks'
import { configure, whyNotOurs } from './configure.js'
import type { Bucket } from './documents.js'
import type { Ownership } from './held-bucket.js'
import { StorageForbidden } from './storage/index.js'
import { type BucketWork, type Claim, claimOf, NO_CLAIM, parkRefused } from './work.js'

type Creating = Outcome<'Created', Bucket>
type CreatingStep = Step<'Created', Bucket>

/** Reserves the name, creates the bucket with the document's mark, and configures it. */
export function creating(work: BucketWork): Handler<'Created', Bucket> {
  return parkRefused(async (doc, step) => {
    const claim = claimOf(doc)
    if (claim && isRenamed(work, doc, claim)) return rename(work, doc, step, claim)
    if (!claim || step.name === undefined || step.name === 'name') return reserve(work, doc, step)
    if (step.name === 'create') return create(work, doc, step, claim)
    return configure(work, doc, step, claim)
  })
}

async function reserve(work: BucketWork, doc: Readonly<Bucket>, step: CreatingStep): Promise<Creating> {
  await work.ensureIndexes()
  const { name, problem } = work.wishes(doc)
  if (problem) return step.park(problem)
  const region = doc.region ?? undefined
  const reserved = `${region ?? ''}/${name}`
  try {
    await work.holder(doc, step).set({ reserved })
  } catch (error) {
    if (!isDuplicateKey(error)) throw error
    return reservedByAnother(work, step, reserved, name)
  }
  // Recorded before anything is created: a bucket with this mark can only be this document's.
  const claim = { bucket: name, region, mark: doc.mark ?? randomUUID() }
  const bucket = await work.bucket(doc, step, claim)
  const owner = await bucket.ownership()
  if (owner === 'unmarked' || typeof owner === 'object') return foreign(step, name, owner)
  const { mark } = claim
  return step.again({ step: 'create', set: { bucket: name, storedIn: region ?? null, reserved, mark } })
}

async function create(work: BucketWork, doc: Readonly<Bucket>, step: CreatingStep, claim: Claim): Promise<Creating> {
  const bucket = await work.bucket(doc, step, claim)
  let owner = await bucket.ownership()
  const isThere = owner === 'ours'
  if (owner === 'absent' || owner === 'hidden') owner = await bucket.create(() => work.isWanted(doc))
  if (owner === 'absent') return step.wait(`bucket ${claim.bucket} to appear`, { on: 'bucket' })
  if (owner === 'hidden') throw new StorageForbidden(bucket.requests.request('s3:GetBucketTagging'), 'Access Denied')
  // It didn't exist when its name was reserved: some storages don't accept tags when a bucket is created.
  const isUnmarked = owner === 'unmarked' && (await bucket.isEmpty())
  if (owner !== 'ours' && !isUnmarked) return foreign(step, claim.bucket, owner)
  if (isUnmarked || isThere) await bucket.stamp()
  return step.again({ step: 'versioning' })
}

function isRenamed(work: BucketWork, doc: Readonly<Bucket>, claim: Claim): boolean {
  return work.wishes(doc).name !== claim.bucket || (doc.region ?? undefined) !== claim.region
}

/** Drops the claim after the owner has corrected the name or the region of a document that couldn't be created; a bucket that exists keeps both. */
async function rename(work: BucketWork, doc: Readonly<Bucket>, step: CreatingStep, claim: Claim): Promise<Creating> {
  const bucket = await work.bucket(doc, step, claim)
  const owner = await bucket.ownership()
  // It may be this document's: without the claim it would never be removed.
  if (owner === 'hidden') throw new StorageForbidden(bucket.requests.request('s3:GetBucketTagging'), 'Access Denied')
  if (owner !== 'ours') return step.again({ step: 'name', set: NO_CLAIM })
  return step.park(`bucket ${claim.bucket} is made: its name and region can't be changed`)
}

const foreign = (step: CreatingStep, name: string, owner: Ownership): Creating =>
  step.park(`bucket ${name} exists and ${whyNotOurs(owner)}: choose another name, or remove it`, { set: NO_CLAIM })

async function reservedByAnother(work: BucketWork, step: CreatingStep, reserved: string, name: string) {
  const other = await work.reservedBy(reserved)
  if (!other) return step.wait(`bucket name ${name} to be free`, { on: 'bucket-name' })
  const whose = `Bucket ${idText(other['_id'])}`
  if (other['phase'] === 'Deleting')
    return step.wait(`bucket name ${name} to be free: ${whose} is being deleted`, { on: 'bucket-name' })
  return step.park(`bucket name ${name} is reserved by ${whose}: choose another`)
}
