import type { ThrowawayServer } from './throwaway.mjs'

export interface QdrantServer extends ThrowawayServer {
  /** `http://127.0.0.1:port` */
  readonly url: string
  readonly host: string
}

export declare function installQdrant(): Promise<{ folder: string; python: string }>
export declare function startQdrant(): Promise<QdrantServer>
