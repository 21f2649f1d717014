import type { ThrowawayServer } from './throwaway.mjs'

export interface MariadbServer extends ThrowawayServer {
  /** `mysql://user:password@127.0.0.1:port/database` */
  readonly url: string
  readonly host: string
  readonly user: string
  readonly password: string
  readonly database: string
}

export declare function startMariadb(options?: { settings?: Record<string, string | number> }): Promise<MariadbServer>
