import type { S3Client } from '@aws-sdk/client-s3'
import type { Db, Document } from 'mongodb'
import { type Duration, Unavailable } from 'phaselock'
import { durationMs, protocolCollection } from 'phaselock/tasks'
import { BUCKET_COLLECTIONS } from '../documents.js'
import { type ReadSecret, readKeys, type StorageKeys } from './credentials.js'
import { loadSdk, type Sdk } from './sdk.js'
import { parseStorage, type StorageSpecInCode } from './spec.js'

/**
 * The storage for the `region` of a bucket:
 * - a client: all buckets are in its storage
 * - storages by region
 * - a function: for regions that come and go; undefined: there is no such region
 */
export type StorageSource =
  | S3Client
  | Readonly<Record<string, StorageSpecInCode>>
  | ((region: string | undefined) => Promise<S3Client | StorageSpecInCode | undefined>)

export interface StoragesOptions {
  readonly db: Db
  /** Default: the documents in `StorageRegion`. */
  readonly storage?: StorageSource | undefined
  readonly secrets?: ReadSecret | undefined
  /** The time limit of one request. Default 15s. */
  readonly requestTimeout?: Duration | undefined
}

/** The storage of one region, ready for requests. */
export interface Storage {
  readonly sdk: Sdk
  readonly client: S3Client
  /** A name for messages: `region eu-1`. */
  readonly label: string
  readonly requestTimeoutMs: number
  /** The location that buckets are created with; undefined: none. */
  readonly location: string | undefined
}

const NO_LOCATION = 'us-east-1'

/** The storages of all regions. A wrong, missing or unreachable one is `Unavailable`: its documents wait, others continue. */
export class Storages {
  private readonly clients = new Map<string, { readonly madeFrom: string; readonly client: S3Client }>()
  private readonly requestTimeoutMs: number

  constructor(private readonly options: StoragesOptions) {
    this.requestTimeoutMs = durationMs(options.requestTimeout ?? '15s')
  }

  /** @throws Unavailable with the reason */
  async of(region: string | undefined): Promise<Storage> {
    const sdk = await loadSdk()
    const label = region === undefined ? 'the default region' : `region ${region}`
    const found = await this.find(region, label)
    const client = isClient(found) ? found : await this.clientOf(sdk, region, label, found)
    const location = await client.config.region()
    return {
      sdk,
      client,
      label,
      requestTimeoutMs: this.requestTimeoutMs,
      location: location === NO_LOCATION ? undefined : location,
    }
  }

  private async find(region: string | undefined, label: string): Promise<S3Client | StorageSpecInCode> {
    const { storage, db } = this.options
    if (isClient(storage)) return storage
    let found: unknown
    if (typeof storage === 'function') found = await storage(region)
    else if (storage) found = region === undefined ? undefined : storage[region]
    else if (typeof region === 'string') {
      const document = await protocolCollection(db, BUCKET_COLLECTIONS.region).findOne({ _id: region as never })
      const { _id, createdAt: _c, updatedAt: _u, ...described }: Document = document ?? {}
      found = _id === undefined ? undefined : described
    }
    if (found === undefined || found === null) {
      const where = storage
        ? "the option 'storage'"
        : `a document ${region ?? ''} in the collection ${BUCKET_COLLECTIONS.region}`
      throw new Unavailable(`no storage for ${label}: expected ${where}`)
    }
    if (isClient(found)) return found
    const spec = parseStorage(found, storage !== undefined)
    if (typeof spec === 'string') throw new Unavailable(`the storage of ${label} is described wrongly: ${spec}`)
    return spec
  }

  /** Returns the client of a region, created again if its description or its keys have changed. */
  private async clientOf(sdk: Sdk, region: string | undefined, label: string, spec: StorageSpecInCode) {
    const keys = await readKeys(spec.credentials, this.options.secrets).catch((cause) => {
      throw new Unavailable(`storage of ${label}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause })
    })
    const madeFrom = JSON.stringify([spec, keys])
    const known = this.clients.get(region ?? '')
    if (known?.madeFrom === madeFrom) return known.client
    const client = makeClient(sdk, spec, keys)
    this.clients.set(region ?? '', { madeFrom, client })
    return client
  }
}

function makeClient(sdk: Sdk, spec: StorageSpecInCode, keys: StorageKeys | undefined): S3Client {
  return new sdk.S3Client({
    region: spec.region ?? NO_LOCATION,
    ...(spec.endpoint === undefined ? {} : { endpoint: spec.endpoint }),
    forcePathStyle: spec.pathStyle ?? spec.endpoint !== undefined,
    ...(keys ? { credentials: { ...keys } } : {}),
    // The engine retries, with pauses that all replicas see.
    maxAttempts: 1,
    // Not all storages support the newer checksums.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  })
}

/** Recognizes a client by its shape: an app may bring another copy of the SDK. */
function isClient(value: unknown): value is S3Client {
  const { send, config } = (value ?? {}) as Partial<S3Client>
  return typeof value === 'object' && typeof send === 'function' && typeof config === 'object'
}
