import type { Collection, Db, Document } from 'mongodb'
import type { Handler, Outcome, Step } from 'phaselock'
import { Holder, idText, protocolCollection } from 'phaselock/tasks'
import { BUCKET_COLLECTIONS, type Bucket } from './documents.js'
import { HeldBucket } from './held-bucket.js'
import { bucketNameFor } from './names.js'
import { type BucketQuota, StorageRefused, type Storages } from './storage/index.js'
import { wishProblem } from './wishes.js'

/** S3 accepts letters, digits, spaces and these in the value of a tag. */
const NOT_IN_TAGS = /[^\p{L}\p{Z}\p{N}_.:/=+\-@]/gu
const TAG_LENGTH = 200

/** Withdraws a document's claim on a bucket that belongs to another owner. */
export const NO_CLAIM = { bucket: null, storedIn: null, reserved: null, mark: null } as const

/** The part shared by the handlers of all buckets. */
export class BucketWork {
  private readonly documents: Collection<Document>
  private ready: Promise<unknown> | undefined

  constructor(
    private readonly db: Db,
    readonly storages: Storages,
    /** Undefined: a quota is measured. */
    readonly quota: BucketQuota | undefined,
    readonly namePrefix: string,
    /** The number of objects that one step lists, measures or deletes. */
    readonly pageSize: number,
  ) {
    this.documents = protocolCollection(db, BUCKET_COLLECTIONS.bucket)
  }

  /** Returns the name of a document's bucket, and the problem with its owner's fields, if any. */
  wishes(doc: Readonly<Bucket>): { name: string; problem: string | undefined } {
    const name = bucketNameFor(doc, this.namePrefix)
    return { name, problem: wishProblem(doc, name) }
  }

  holder(doc: Readonly<Bucket>, step: Step<string, Bucket>): Holder {
    return new Holder(this.documents, doc, step)
  }

  /** Returns the bucket of a document that has a name for it. @throws Unavailable while its storage can't be found */
  async bucket(doc: Readonly<Bucket>, step: Step<string, Bucket>, claim: Claim): Promise<HeldBucket> {
    const storage = await this.storages.of(claim.region)
    const document = tagText(idText(doc._id))
    const mark = { mark: claim.mark, database: tagText(this.db.databaseName), document }
    return new HeldBucket(storage, claim.bucket, mark, this.holder(doc, step), step)
  }

  /** Returns true if the document still exists, has this mark and isn't about to be deleted. */
  async isWanted(doc: Readonly<Bucket>): Promise<boolean> {
    const found = await this.documents.findOne({ _id: doc._id as never, mark: doc.mark ?? null })
    return found !== null && found['phase'] !== 'Deleting' && found['phase'] !== 'Deleted'
  }

  /** Returns the other document that has reserved this bucket. */
  async reservedBy(reserved: string): Promise<Document | null> {
    return this.documents.findOne({ reserved })
  }

  /** Creates the index of reservations, once per process; a failure is thrown, and the next call tries again. */
  async ensureIndexes(): Promise<void> {
    this.ready ??= this.documents
      .createIndex({ reserved: 1 }, { unique: true, partialFilterExpression: { reserved: { $type: 'string' } } })
      .catch((error) => {
        this.ready = undefined
        throw error
      })
    await this.ready
  }
}

/** A document's recorded right to a bucket. */
export interface Claim {
  readonly bucket: string
  readonly region: string | undefined
  readonly mark: string
}

/** The claim, recorded before the bucket is created; undefined: nothing was created for this document. */
export function claimOf({ bucket, storedIn, mark }: Readonly<Bucket>): Claim | undefined {
  return bucket && mark ? { bucket, region: storedIn ?? undefined, mark } : undefined
}

/** Parks a document after a refusal, because the storage would refuse the request again: a person has to look. */
export function parkRefused<Next extends string>(handler: Handler<Next, Bucket>): Handler<Next, Bucket> {
  return async (doc, step): Promise<Outcome<Next, Bucket>> => {
    try {
      return await handler(doc, step)
    } catch (error) {
      if (error instanceof StorageRefused) return step.park(error.message)
      throw error
    }
  }
}

const tagText = (text: string): string => text.replace(NOT_IN_TAGS, '_').slice(0, TAG_LENGTH)
