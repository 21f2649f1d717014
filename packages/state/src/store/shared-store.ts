import type { Db } from 'mongodb'
import type { Logger } from 'phaselock'
import type { LockProvider, RedisClient } from 'phaselock/locks'
import type { SharedValues, ValuesOptions } from './types.js'

/** The options of `new SharedStore(...)`. */
export interface SharedStoreOptions {
  /**
   * The place of the values: your `Db`, or your client of ioredis, by its shape. You connect and close it. Default: the memory of this process, which
   * is refused where the environment says that there are several (PHASELOCK_MODE=distributed, POD_NAME, KUBERNETES_SERVICE_HOST).
   */
  readonly client?: Db | RedisClient | undefined
  /** The second part of each key, for several environments on one server. Default `'default'`. */
  readonly environment?: string | undefined
  /** MongoDB: the collection of the values. Default `'phaselock.state'`. */
  readonly collection?: string | undefined
  /** MongoDB: the same database on a client made for listening (`doorbellClient`). Default: that of `client`. */
  readonly doorbellDb?: Db | undefined
  /** False: neither rings nor listens. Default true: listens while a layer is on or a caller waits. */
  readonly doorbell?: boolean | undefined
  /** The locks of `getOrLoad`. Default: in the same place as the values. */
  readonly locks?: LockProvider | undefined
  /** Default: warnings and errors on standard error. */
  readonly logger?: Logger | undefined
  /** Where the mode is found. Default process.env. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined
}

/** Values that all processes share, in MongoDB or Redis; in the memory of the process where there is only one. */
export interface SharedStoreShape {
  /** `mongodb`, `redis` or `memory`. */
  readonly kind: string
  /** The values under a prefix. @throws InvalidOptions */
  of<V = unknown>(prefix: string, options?: ValuesOptions): SharedValues<V>
  /** Removes values that have expired, as the duty does. @returns their number */
  removeExpired(): Promise<number>
  /** Stops listening, and sends the last rings. Closes no client that was passed in. */
  close(): Promise<void>
}
