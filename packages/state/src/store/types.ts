import type { Duration } from 'phaselock'

/** The options of `store.of(prefix, ...)`: they hold for all values under the prefix. */
export interface ValuesOptions {
  /** The time after which a value is gone, from when it was written, by the server's clock: `'24h'`. Default: it stays until it is deleted. */
  readonly ttl?: Duration | undefined
  /** The second part of the keys, where it isn't the store's own. */
  readonly environment?: string | undefined
  /**
   * Keeps values in this process for a moment, so that they aren't read each time. Give the same in every process: a process with a layer rings when it
   * writes. Default: off.
   */
  readonly layer?: boolean | LayerOptions | undefined
}

/** The options of a layer in the process. */
export interface LayerOptions {
  /** The age at which a value is read again although no ring came: the bound of staleness when every ring is lost. Default `'1s'`, its maximum. */
  readonly maxAge?: Duration | undefined
  /** The number of values that are kept; those that weren't read for longest go first. Default 1,000, at most 100,000. */
  readonly most?: number | undefined
}

/** The options of a write. */
export interface WriteOptions {
  /** As in {@link ValuesOptions}, for this value. */
  readonly ttl?: Duration | undefined
}

/** The options of a read. */
export interface ReadOptions<V> {
  /** Returned in place of the value when the store is away, in place of StoreUnavailable. One warning is logged per outage. Default: the error. */
  readonly otherwise?: V | undefined
}

/** A value with what is known of it. */
export interface Entry<V> {
  /** The value, a copy of the caller's own. */
  readonly value: V
  /** Different after each write of the key: an argument of `compareAndSet`. */
  readonly version: string
  /** The time that it has left, in milliseconds, at least at the moment of the answer; undefined if it has no ttl. */
  readonly leftMs: number | undefined
}

/** The argument of a function that loads a value. */
export interface LoadContext {
  /** The whole key: `prefix:environment:part`. */
  readonly key: string
  /** Aborts when the lock is lost, at the latest after `lockAtMostFor`: another process may then load. */
  readonly signal: AbortSignal
  /**
   * Sets the ttl of the value that is loaded, where only its source knows it; it takes the place of `ttl`.
   * @throws Error for a duration of 0 or less
   */
  keepFor(ttl: Duration): void
}

/** The options of `getOrLoad`. */
export interface GetOrLoadOptions<V> extends WriteOptions {
  /** The time to wait while another process loads. Default `'5s'`. */
  readonly lockWait?: Duration | undefined
  /**
   * The time that loading may take. A process that dies while it loads keeps the others from loading for this long. Default `'30s'`.
   */
  readonly lockAtMostFor?: Duration | undefined
  /**
   * When the store or the locks are away: return the last value that this process has seen, for this long after it expired (or was seen, if it has no
   * ttl), with one warning per outage. Default: the error.
   */
  readonly staleFor?: Duration | undefined
  /** Judges the stored value: one for which it returns false is loaded anew, as if it weren't there. Default: each is good. */
  readonly isFresh?: ((value: V) => boolean) | undefined
}

/**
 * The values under one prefix of a {@link SharedStore}. Each key is `prefix:environment:part`.
 *
 * Values come back as they went in: strings, numbers, booleans, null, bigints of 64 bits, dates, Uint8Arrays (as Buffer), ObjectIds, UUIDs and
 * Decimal128, in plain objects and arrays. Anything else is refused with its path: undefined, functions, class instances.
 *
 * Each method throws StoreUnavailable when the server is away for 5 s, and InvalidKey for a part that can't be used.
 */
export interface SharedValues<V = unknown> {
  /** The first part of the keys. */
  readonly prefix: string
  /** The second part of the keys. */
  readonly environment: string

  /**
   * Reads a value; undefined if it is missing or has expired.
   * @example await scenarios.get('s1', { otherwise: { steps: [] } })
   */
  get(part: string, options?: ReadOptions<V>): Promise<V | undefined>

  /**
   * Reads the values that exist, by their parts, in one command (in Redis one for each, sent together). Never from the layer. At most 1,000 parts.
   * @example (await scenarios.getMany(['s1', 's2'])).get('s1')
   */
  getMany(parts: readonly string[], options?: ReadOptions<ReadonlyMap<string, V>>): Promise<ReadonlyMap<string, V>>

  /** Reads a value with its version and the time that it has left; undefined if it is missing. Never from the layer. */
  entry(part: string): Promise<Entry<V> | undefined>

  /**
   * Stores a value, whatever was there.
   * @returns its version
   * @throws ValueTooLarge beyond 8 MB; InvalidValue
   */
  set(part: string, value: V, options?: WriteOptions): Promise<string>

  /**
   * Deletes a value.
   * @param options.version deletes it only if this is still its version
   * @returns false if there was none (of this version)
   */
  delete(part: string, options?: { readonly version?: string | undefined }): Promise<boolean>

  /**
   * Stores a value if the stored one is still of this version. Of several that try this at the same time, one succeeds.
   * @param version as `entry`, `set` or `compareAndSet` returned it; null: only if the value is missing
   * @returns the new version; undefined if another was quicker
   * @throws ValueTooLarge; InvalidValue
   */
  compareAndSet(part: string, version: string | null, value: V, options?: WriteOptions): Promise<string | undefined>

  /**
   * Changes a value: reads it, and stores what `change` returns if no other has written it in between; else again. `change` may be called several
   * times. Its ttl begins anew.
   * @param change gets the value, undefined if it is missing; if it returns undefined, the value stays as it is
   * @returns the stored value
   * @throws UpdateContended after 5 s; ValueTooLarge; InvalidValue; what `change` throws
   * @example await counters.update('visits', (n = 0) => n + 1)
   */
  update(
    part: string,
    change: (value: V | undefined) => V | undefined | Promise<V | undefined>,
    options?: WriteOptions,
  ): Promise<V | undefined>

  /**
   * Reads a value. If it is missing, one process loads it, and all others get the value that this one has stored. Callers of one process share one look and one load. A
   * failed load isn't stored: the callers that wait for it in this process get its error, and the next one tries.
   * @throws what `load` throws; StillLoading after `lockWait`; LockLost if `load` takes longer than `lockAtMostFor`; LockProviderUnavailable;
   *   LoadsItself
   * @example const token = await tokens.getOrLoad('crm', () => logIn(), { ttl: '55m', staleFor: '5m' })
   */
  getOrLoad(part: string, load: (context: LoadContext) => V | Promise<V>, options?: GetOrLoadOptions<V>): Promise<V>
}
