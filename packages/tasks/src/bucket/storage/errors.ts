/** The request that failed, and its storage. */
export interface StorageRequest {
  /** The action as in policies: `s3:CreateBucket`. */
  readonly action: string
  readonly bucket: string
  readonly region: string
}

/** The credentials don't allow an action; names the action and the bucket. */
export class StorageForbidden extends Error {
  override readonly name = 'StorageForbidden'
  constructor(
    readonly request: StorageRequest,
    serverMessage: string,
  ) {
    super(
      `${request.action} on bucket ${request.bucket} of ${request.region} is not allowed: give the credentials this right, or the bucket is another account's (${serverMessage})`,
    )
  }
}

/** The storage refuses the request, or doesn't implement it: a repeated request would get the same answer. */
export class StorageRefused extends Error {
  override readonly name = 'StorageRefused'
  constructor(
    readonly request: StorageRequest,
    /** S3's own code: `MalformedPolicy`, `NotImplemented`. */
    readonly code: string,
    serverMessage: string,
  ) {
    super(`${request.action} on bucket ${request.bucket} of ${request.region} was refused: ${code}: ${serverMessage}`)
  }
}

/** Answers of a storage that a step expects, by S3's code: the bucket exists already, is gone, isn't empty. */
export class StorageAnswer extends Error {
  override readonly name = 'StorageAnswer'
  constructor(
    readonly request: StorageRequest,
    readonly code: ExpectedCode,
    serverMessage: string,
  ) {
    super(`${request.action} on bucket ${request.bucket} of ${request.region}: ${code}: ${serverMessage}`)
  }
}

export const EXPECTED_CODES = [
  'BucketAlreadyExists',
  'BucketAlreadyOwnedByYou',
  'BucketNotEmpty',
  'NoSuchBucket',
  'NoSuchTagSet',
  'NoSuchUpload',
] as const
export type ExpectedCode = (typeof EXPECTED_CODES)[number]

export const isAnswer = (error: unknown, ...codes: ExpectedCode[]): error is StorageAnswer =>
  error instanceof StorageAnswer && codes.includes(error.code)

/** True if the storage doesn't have the operation. */
export const isNotImplemented = (error: unknown): boolean =>
  error instanceof StorageRefused && ['NotImplemented', 'MethodNotAllowed'].includes(error.code)
