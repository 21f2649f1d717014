import type { ObjectIdentifier, Tag } from '@aws-sdk/client-s3'
import type { Holder, RunningStep } from 'phaselock/tasks'
import { isAnswer, isNotImplemented, Requests, type Storage, StorageForbidden } from './storage/index.js'

/** The tags that identify the owner of a bucket. */
export const TAGS = {
  /** A random string that its document has too. */
  mark: 'phaselock.dev/mark',
  /** For users: the document's database and `_id`. */
  database: 'phaselock.dev/database',
  document: 'phaselock.dev/document',
  /** The highest fence of a step that has written to the bucket itself. */
  fence: 'phaselock.dev/fence',
} as const

/**
 * The owner of a bucket:
 * - `absent`: there is no such bucket
 * - `ours`: it has this document's mark
 * - `unmarked`: it has no mark at all
 * - `hidden`: these credentials may not read its tags
 */
export type Ownership = 'absent' | 'ours' | 'unmarked' | 'hidden' | { readonly whose: string }

/** The tags of a bucket for its document. */
export interface Mark {
  readonly mark: string
  readonly database: string
  readonly document: string
}

/** The result of listing versions: the objects to delete, and the start of the next page. */
export interface Page {
  readonly objects: readonly ObjectIdentifier[]
  readonly bytes: number
  readonly next: { readonly key?: string; readonly version?: string } | undefined
}

/**
 * A bucket in one step of its document. Invariant, also for a step that continues after another replica has taken the document: it
 * writes nothing once its lease is over by its own clock, or once a step with a higher fence has stamped the bucket.
 */
export class HeldBucket {
  readonly requests: Requests
  private tags: readonly Tag[] = []

  constructor(
    readonly storage: Storage,
    readonly name: string,
    private readonly mark: Mark,
    readonly holder: Holder,
    step: RunningStep,
  ) {
    this.requests = new Requests(storage, name, holder, step)
  }

  /**
   * Finds the owner of the bucket of this name.
   * @throws NoLongerHeld if a step with a higher fence has stamped it
   */
  async ownership(): Promise<Ownership> {
    const { sdk } = this.storage
    try {
      const command = new sdk.GetBucketTaggingCommand({ Bucket: this.name })
      this.tags = (await this.requests.read('s3:GetBucketTagging', command)).TagSet ?? []
    } catch (error) {
      if (isAnswer(error, 'NoSuchBucket')) return 'absent'
      if (error instanceof StorageForbidden) return 'hidden'
      if (!isAnswer(error, 'NoSuchTagSet')) throw error
      this.tags = []
    }
    const mark = this.tag(TAGS.mark)
    if (mark === undefined) return this.tags.length === 0 ? 'unmarked' : { whose: 'somebody else: it has other tags' }
    if (mark !== this.mark.mark) return { whose: this.ownerInWords() }
    if (Number(this.tag(TAGS.fence)) > this.holder.fence) throw this.holder.lost()
    return 'ours'
  }

  /**
   * Creates the bucket, with its mark in the same request. If the document turns out to have been taken away in the meantime, the
   * bucket is removed again, unless the document still wants it.
   * @returns its owner afterwards
   * @throws NoLongerHeld
   */
  async create(isWanted: () => Promise<boolean>): Promise<Ownership> {
    const { sdk, location } = this.storage
    const command = new sdk.CreateBucketCommand({
      Bucket: this.name,
      CreateBucketConfiguration: {
        ...(location === undefined ? {} : { LocationConstraint: location as never }),
        Tags: this.ownTags(),
      },
    })
    let made = true
    try {
      await this.requests.write('s3:CreateBucket', command)
    } catch (error) {
      if (isAnswer(error, 'BucketAlreadyExists')) return { whose: 'another account' }
      if (!isAnswer(error, 'BucketAlreadyOwnedByYou')) throw error
      made = false
    }
    // A storage can't check the database, so we do that afterwards.
    await this.holder.assertHeld().catch(async (lost) => {
      if (made && !(await isWanted())) await this.takeBack()
      throw lost
    })
    return this.ownership()
  }

  /** Writes the document's mark and the step's fence; other tags stay. Call it after `ownership`. */
  async stamp(): Promise<void> {
    const { sdk } = this.storage
    const own: readonly string[] = Object.values(TAGS)
    const others = this.tags.filter((tag) => !own.includes(tag.Key ?? ''))
    const Tagging = { TagSet: [...others, ...this.ownTags()] }
    await this.requests.write('s3:PutBucketTagging', new sdk.PutBucketTaggingCommand({ Bucket: this.name, Tagging }))
  }

  /** Returns false if it contains an object, or if an upload has not ended. */
  async isEmpty(): Promise<boolean> {
    if ((await this.versions({}, 1)).objects.length > 0) return false
    return (await this.uploads(1)).length === 0
  }

  /** Returns a page of all versions and delete markers, or only of objects if the storage lists no versions. */
  async versions(from: { key?: string; version?: string }, pageSize: number): Promise<Page> {
    const { sdk } = this.storage
    const command = new sdk.ListObjectVersionsCommand({
      Bucket: this.name,
      MaxKeys: pageSize,
      KeyMarker: from.key,
      VersionIdMarker: from.version,
    })
    const page = await this.requests.read('s3:ListBucketVersions', command).catch((error) => {
      if (isNotImplemented(error)) return undefined
      throw error
    })
    if (!page) return this.objects(from, pageSize)
    // Some storages begin a page with the last entry of the previous page.
    const isNew = (one: ObjectIdentifier) =>
      from.key === undefined || one.Key !== from.key || one.VersionId !== from.version
    const versions = (page.Versions ?? []).filter((one) => isNew(one as ObjectIdentifier))
    const found = [...versions, ...(page.DeleteMarkers ?? []).filter((one) => isNew(one as ObjectIdentifier))]
    return {
      objects: found.map(({ Key, VersionId }) => ({ Key, ...(VersionId ? { VersionId } : {}) })),
      bytes: versions.reduce((sum, { Size }) => sum + (Size ?? 0), 0),
      next: page.IsTruncated ? placeOf(page.NextKeyMarker, page.NextVersionIdMarker) : undefined,
    }
  }

  /** Deletes exactly the objects listed by a page. @returns those that could not be deleted, with the reason */
  async delete({ objects }: Page): Promise<readonly { key: string; code: string; message: string }[]> {
    const { sdk } = this.storage
    const Delete = { Objects: [...objects], Quiet: true }
    const { Errors } = await this.requests.write(
      's3:DeleteObject',
      new sdk.DeleteObjectsCommand({ Bucket: this.name, Delete }),
    )
    return (Errors ?? [])
      .filter(({ Code }) => Code !== 'NoSuchKey' && Code !== 'NoSuchVersion')
      .map(({ Key = '', Code = 'Unknown', Message = '' }) => ({ key: Key, code: Code, message: Message }))
  }

  /** Returns multipart uploads that were begun and not ended. */
  async uploads(most: number): Promise<readonly { key: string; id: string }[]> {
    const { sdk } = this.storage
    const command = new sdk.ListMultipartUploadsCommand({ Bucket: this.name, MaxUploads: most })
    const { Uploads } = await this.requests
      .read('s3:ListBucketMultipartUploads', command)
      .catch((error) => (isNotImplemented(error) ? { Uploads: [] } : Promise.reject(error)))
    return (Uploads ?? []).map(({ Key = '', UploadId = '' }) => ({ key: Key, id: UploadId }))
  }

  async abort(upload: { key: string; id: string }): Promise<void> {
    const { sdk } = this.storage
    const command = new sdk.AbortMultipartUploadCommand({ Bucket: this.name, Key: upload.key, UploadId: upload.id })
    await this.requests.write('s3:AbortMultipartUpload', command).catch((error) => {
      if (!isAnswer(error, 'NoSuchUpload')) throw error
    })
  }

  /** Removes the bucket; storages only remove empty ones. @returns false if it contains an object */
  async remove(): Promise<boolean> {
    const { sdk } = this.storage
    try {
      await this.requests.write('s3:DeleteBucket', new sdk.DeleteBucketCommand({ Bucket: this.name }))
      return true
    } catch (error) {
      if (isAnswer(error, 'NoSuchBucket')) return true
      if (isAnswer(error, 'BucketNotEmpty')) return false
      throw error
    }
  }

  private async objects(from: { key?: string }, pageSize: number): Promise<Page> {
    const { sdk } = this.storage
    const command = new sdk.ListObjectsV2Command({ Bucket: this.name, MaxKeys: pageSize, StartAfter: from.key })
    const page = await this.requests.read('s3:ListBucket', command)
    const contents = page.Contents ?? []
    return {
      objects: contents.map(({ Key }) => ({ Key })),
      bytes: contents.reduce((sum, { Size }) => sum + (Size ?? 0), 0),
      next: page.IsTruncated ? placeOf(contents.at(-1)?.Key, undefined) : undefined,
    }
  }

  /** Removes a bucket that this very step created for a document it had lost: only with this step's fence, and only if empty. */
  private async takeBack(): Promise<void> {
    const { sdk, client, requestTimeoutMs } = this.storage
    const bucket = { Bucket: this.name }
    const options = { abortSignal: AbortSignal.timeout(requestTimeoutMs) }
    const mine = await client.send(new sdk.GetBucketTaggingCommand(bucket), options).catch(() => undefined)
    const fence = mine?.TagSet?.find(({ Key }) => Key === TAGS.fence)?.Value
    if (fence !== String(this.holder.fence)) return
    await client.send(new sdk.DeleteBucketCommand(bucket), options).catch(() => undefined)
  }

  private ownTags(): Tag[] {
    const { mark, database, document } = this.mark
    const values = { mark, database, document, fence: String(this.holder.fence) }
    return Object.entries(TAGS).map(([key, Key]) => ({ Key, Value: values[key as keyof typeof values] }))
  }

  private tag(key: string): string | undefined {
    return this.tags.find((tag) => tag.Key === key)?.Value
  }

  private ownerInWords(): string {
    return `the document ${this.tag(TAGS.document)} of the database ${this.tag(TAGS.database)}`
  }
}

function placeOf(key: string | undefined, version: string | undefined) {
  return { ...(key ? { key } : {}), ...(version ? { version } : {}) }
}
