import type { ThrowawayServer } from './throwaway.mjs'

export interface PostgresServer extends ThrowawayServer {
  /** `postgres://user:password@127.0.0.1:port/postgres`: a superuser. */
  readonly url: string
  readonly host: string
  readonly user: string
  readonly password: string
  readonly database: string
}

export declare function startPostgres(options?: {
  durable?: boolean
  settings?: Record<string, string | number>
}): Promise<PostgresServer>
