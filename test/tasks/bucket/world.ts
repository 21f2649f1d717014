import {
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetBucketTaggingCommand,
  ListBucketsCommand,
  ListObjectVersionsCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3'
import { afterAll, afterEach, beforeAll, expect, jest } from '@jest/globals'
import { type Collection, type Document, ObjectId } from 'mongodb'
import {
  BUCKET_COLLECTIONS,
  type BucketLifecycle,
  type BucketOptions,
  bucketLifecycle,
} from '../../../packages/tasks/src/bucket/index.js'
import type { Replica, ReplicaOptions } from '../../../src/index.js'
import { buildS3, type S3Server, startS3 } from '../../../tools/servers/s3.mjs'
import { ServerMissing } from '../../../tools/servers/server-missing.mjs'
import { bePatient, useDatabase } from '../../support/database.js'
import { describeWith } from '../../support/describe-with.js'
import { historyOf, TaskWorld } from '../../support/task-world.js'

// The storage is a process of its own, and a busy machine's.
jest.setTimeout(600_000)
bePatient(120_000)

type Options = Partial<BucketOptions>
type Stored = Document & { _id: ObjectId | string }

/** `describe`, for tests that need the S3 server, which is built with Go. */
export const describeWithS3 = await describeWith('S3 server', buildS3, ServerMissing)

/** What this server's users need: once a bucket has a policy, an account that is no administrator has just what it says. */
export const FOR_TENANT = { Effect: 'Allow', Principal: { AWS: ['tenant'] }, Action: 's3:*' }

/** An S3 server with an account of ours and one of another, a database with buckets' documents, and the replicas of a test. */
export class World extends TaskWorld {
  server!: S3Server
  /** Our account's. */
  client!: S3Client

  get documents(): Collection<Stored> {
    return this.db.collection<Stored>(BUCKET_COLLECTIONS.bucket)
  }

  clientOf(account: string, more: object = {}): S3Client {
    const { endpoint, region, secretAccessKey } = this.server
    const credentials = { accessKeyId: account, secretAccessKey }
    return new S3Client({ endpoint, region, credentials, forcePathStyle: true, maxAttempts: 1, ...more })
  }

  replica(options: Options = {}, more: Partial<ReplicaOptions> = {}): Replica & { lifecycle: BucketLifecycle } {
    const lifecycle = bucketLifecycle({ db: this.db, storage: this.client, keepFor: '0s', ...options })
    return Object.assign(this.run([lifecycle], more), { lifecycle })
  }

  /** What a plain client does: inserts a document with just its own fields and `phase`. */
  async insert(fields: Document = {}): Promise<ObjectId> {
    const _id = new ObjectId()
    await this.documents.insertOne({ _id, phase: 'Creating', ...fields })
    return _id
  }

  async write(id: ObjectId, fields: Document): Promise<void> {
    await this.documents.updateOne({ _id: id }, { $set: fields })
  }

  async document(id: ObjectId): Promise<Document> {
    return (await this.documents.findOne({ _id: id })) ?? {}
  }

  untilPhase(id: ObjectId, phase: string | undefined, replicas?: readonly Replica[]): Promise<unknown> {
    return this.until(async () => expect((await this.document(id))['phase']).toBe(phase), replicas)
  }

  /** Until it is parked; resolves to the reason. */
  async untilParked(id: ObjectId): Promise<string> {
    await this.until(async () => expect((await this.document(id))['lockedAt']).toEqual(new Date('9999-12-31')))
    return (await this.document(id))['progress'].error.message
  }

  async buckets(): Promise<string[]> {
    return ((await this.client.send(new ListBucketsCommand({}))).Buckets ?? []).map(({ Name }) => Name!)
  }

  async tags(name: string, client = this.client): Promise<Record<string, string>> {
    const { TagSet = [] } = await client.send(new GetBucketTaggingCommand({ Bucket: name }))
    return Object.fromEntries(TagSet.map(({ Key, Value }) => [Key!, Value!]))
  }

  async put(name: string, key: string, body = 'x', client = this.client): Promise<void> {
    await client.send(new PutObjectCommand({ Bucket: name, Key: key, Body: body }))
  }

  /** So many objects, a further version of some, delete markers on others, and uploads that were never ended. */
  async fill(name: string, { objects = 20, versions = 5, markers = 5, uploads = 2 } = {}): Promise<void> {
    const keys = Array.from({ length: objects }, (_, n) => `folder-${n % 7}/object-${n}`)
    await all(keys, (key) => this.put(name, key))
    await all(keys.slice(0, versions), (key) => this.put(name, key, 'again'))
    await all(keys.slice(objects - markers), (Key) => this.client.send(new DeleteObjectCommand({ Bucket: name, Key })))
    const begin = (n: number) => new CreateMultipartUploadCommand({ Bucket: name, Key: `upload-${n}` })
    await all(
      Array.from({ length: uploads }, (_, n) => n),
      (n) => this.client.send(begin(n)),
    )
  }

  async versions(name: string): Promise<number> {
    const page = await this.client.send(new ListObjectVersionsCommand({ Bucket: name }))
    return (page.Versions ?? []).length + (page.DeleteMarkers ?? []).length
  }

  /** A bucket that isn't ours: of our own account, made by hand, or of another one. */
  async foreign(name: string, account = 'ours'): Promise<void> {
    await this.clientOf(account).send(new CreateBucketCommand({ Bucket: name }))
    await this.put(name, 'precious', 'x', this.clientOf(account))
  }

  /** What a client without credentials gets. */
  async anonymous(path: string, init: RequestInit = {}): Promise<number> {
    const response = await fetch(`${this.server.endpoint}/${path}`, init)
    await response.arrayBuffer()
    return response.status
  }

  async history(id: ObjectId): Promise<string[]> {
    return historyOf(await this.document(id))
  }
}

/** Not all at once: one machine is client and server. */
async function all<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const left = [...items]
  const worker = async () => {
    for (let item = left.pop(); item !== undefined; item = left.pop()) await work(item)
  }
  await Promise.all(Array.from({ length: 16 }, worker))
}

/** One S3 server for a file, and an empty database for each of its tests. */
export function useWorld(): World {
  const world = new World()
  beforeAll(async () => {
    world.server = await startS3({ accounts: { ours: 'admin', others: 'userplus', tenant: 'user' } })
    world.client = world.clientOf('ours')
  })
  afterAll(() => world.server?.stop())
  // Before the database's own hook: those that are registered first run first.
  afterEach(() => world.end())
  world.database = useDatabase()
  return world
}
