import type { ThrowawayServer } from './throwaway.mjs'

export interface RedisServer extends ThrowawayServer {
  /** `redis://:password@127.0.0.1:port` */
  readonly url: string
  readonly host: string
  readonly password: string
}

export declare function startRedis(options?: {
  persistence?: 'everysec' | 'always' | 'snapshots' | 'none'
  settings?: Record<string, string | number>
}): Promise<RedisServer>
