import type { Encoded } from './codec.js'

/** A stored value. */
export interface Stored {
  readonly encoded: Encoded
  /** Different after each write of the key. */
  readonly version: string
  /** The time that it has left, in milliseconds, at least at the moment of the answer; undefined: it has no ttl, or that wasn't asked. */
  readonly leftMs: number | undefined
}

/** A write. */
export interface Write {
  readonly encoded: Encoded
  /** The new version: no other write has it. */
  readonly version: string
  readonly ttlMs: number | undefined
  /** The fence of the lock under which it is written; 0: under none. */
  readonly fence: number
}

/** A write is done if the key is in one of the given states. */
export interface Condition {
  /** There is no value. */
  readonly absent?: boolean
  /** The value has this version. */
  readonly version?: string
  /** The value was written under an earlier lock (not under none). */
  readonly fenceBelow?: number
}

/**
 * A place of values. Each method is one decision of the server, by its own clock:
 * - a value that has expired is as one that isn't there, for reads and for conditions;
 * - a write with a condition is done in whole or not at all, and of two that need the same version one is done;
 * - a write that is sent again, because its answer was lost, is answered as the first one was.
 * What was written by others and can't be read counts as absent. Errors are the driver's own.
 */
export interface Backend {
  readonly kind: string
  /** @param withLeft false: `leftMs` isn't needed */
  read(key: string, withLeft: boolean): Promise<Stored | undefined>
  readMany(keys: readonly string[]): Promise<ReadonlyMap<string, Stored>>
  /** @returns false if the condition wasn't met */
  write(key: string, write: Write, condition?: Condition): Promise<boolean>
  /** @returns false if there was no value, or not of this version */
  delete(key: string, version?: string): Promise<boolean>
  /**
   * Removes up to a batch of values that have expired. A server that does so by itself hasn't this method.
   * @returns their number
   */
  removeExpired?(): Promise<number>
  /** The most values that one `removeExpired` removes. */
  readonly batch?: number
}
