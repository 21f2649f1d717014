import type { ThrowawayServer } from './throwaway.mjs'

export interface S3Server extends ThrowawayServer {
  /** `http://127.0.0.1:port`; buckets are part of the path. */
  readonly endpoint: string
  readonly region: string
  readonly accessKeyId: string
  /** Of all accounts. */
  readonly secretAccessKey: string
}

export declare function buildS3(): Promise<string>
export declare function startS3(options?: {
  accounts?: Record<string, 'admin' | 'userplus' | 'user'>
}): Promise<S3Server>
