import { Unavailable } from 'phaselock'
import {
  EXPECTED_CODES,
  type ExpectedCode,
  StorageAnswer,
  StorageForbidden,
  StorageRefused,
  type StorageRequest,
} from './errors.js'

/** The keys themselves are wrong or out of date: the storage counts as unreachable until a person corrects them. */
const BAD_CREDENTIALS = [
  'InvalidAccessKeyId',
  'SignatureDoesNotMatch',
  'ExpiredToken',
  'InvalidToken',
  'TokenRefreshRequired',
  'CredentialsProviderError',
]
/** The region's settings are wrong: the region in the signature, or the endpoint. */
const BAD_REGION = ['AuthorizationHeaderMalformed', 'PermanentRedirect', 'IllegalLocationConstraintException']
/** Temporary errors. `OperationAborted`: another operation on the same bucket is in progress, or its removal isn't finished. */
const PASSING = ['SlowDown', 'ServiceUnavailable', 'RequestTimeout', 'OperationAborted', 'RequestTimeTooSkewed']
const THROTTLED = /throttl|toomanyrequests|requestlimit|bandwidthlimit/i

/** An error of the S3 client, by its shape: two copies of the SDK have different classes. */
interface SdkError {
  readonly name?: string
  readonly message?: string
  readonly Code?: string
  readonly code?: string
  readonly $metadata?: { readonly httpStatusCode?: number }
  readonly $response?: { readonly headers?: Readonly<Record<string, string>> }
}

/**
 * Translates an error of the S3 client for a step:
 * - `Unavailable`: the storage is unreachable, busy or misconfigured; its documents wait without using attempts
 * - StorageForbidden, StorageRefused, StorageAnswer
 */
export function translate(thrown: unknown, request: StorageRequest): Error {
  const error = (thrown ?? {}) as SdkError
  const status = error.$metadata?.httpStatusCode
  const code = codeOf(error, status)
  const said = messageOf(thrown, code)
  const away = (why: string) => new Unavailable(`storage of ${request.region}: ${why}`, retryAfterOf(error, thrown))
  if (EXPECTED_CODES.includes(code as ExpectedCode)) return new StorageAnswer(request, code as ExpectedCode, said)
  if (BAD_CREDENTIALS.includes(code)) return away(`its credentials are not accepted (${said})`)
  if (BAD_REGION.includes(code) || status === 301) return away(`its settings don't fit the storage (${said})`)
  if (code === 'RequestTimeTooSkewed') return away(`its clock and this machine's differ too much (${said})`)
  if (PASSING.includes(code) || THROTTLED.test(code) || status === 429) return away(`${request.action}: ${said}`)
  // Without a status nothing is known; a server error may pass, except for "not implemented".
  if (status === undefined || status === 408 || (status >= 500 && status !== 501))
    return away(`${request.action}: ${said}`)
  if (status === 401 || status === 403) return new StorageForbidden(request, said)
  // A storage names the missing resource: a load balancer's page says nothing about a bucket.
  if (code === NO_CODE) return away(`what answers at its address isn't a storage (404)`)
  return new StorageRefused(request, code, said)
}

/** The code of a 404 that doesn't say what is missing. */
const NO_CODE = 'HTTP 404'

/** The code of an error. A proxy's answer has none. */
function codeOf({ Code, name, code }: SdkError, status: number | undefined): string {
  const known = Code ?? (name && !['Error', 'UnknownError', 'NotFound', 'TypeError'].includes(name) ? name : code)
  if (status === 501) return 'NotImplemented'
  if (status === 405) return 'MethodNotAllowed'
  // Another name for the same: a bucket with versioning.
  if (known === 'VersionedBucketNotEmpty') return 'BucketNotEmpty'
  if (known !== undefined) return known
  return `HTTP ${status}`
}

function messageOf(thrown: unknown, code: string): string {
  const parts = thrown instanceof AggregateError ? thrown.errors : [thrown]
  const words = parts
    .map((part) => ((part as SdkError | undefined)?.message ?? '').replace(/^AWS SDK error wrapper for \w*Error: /, ''))
    .filter(Boolean)
  const text = words.join('; ')
  return text === '' || text === 'UnknownError' ? code : text
}

/** Reads `Retry-After` in seconds; its other form, a date, would have to be compared with a clock. */
function retryAfterOf({ $response }: SdkError, cause: unknown) {
  const entry = Object.entries($response?.headers ?? {}).find(([name]) => name.toLowerCase() === 'retry-after')
  const seconds = entry ? Number(entry[1]) : Number.NaN
  return Number.isFinite(seconds) && seconds > 0 ? ({ retryAfter: `${seconds}s`, cause } as const) : { cause }
}
