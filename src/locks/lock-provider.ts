import type { LockDuration } from './durations.js'
import type { LockConfig } from './lock-config.js'

/**
 * One acquisition of a lock. Invariant: a call on it, however late, never changes another acquisition. Every write is
 * conditional on `lockedBy` and on the lock not having expired, by the server's clock.
 */
export interface SimpleLock {
  /** The lock's name, as in its LockConfig. */
  readonly name: string
  /** Unique per acquisition: POD_NAME, made unique per start, and a nonce; after a `|` the reentry it was taken under, if any. */
  readonly lockedBy: string
  /** Grows with each acquisition of the name, even across those of Java's ShedLock; external systems refuse lower ones. */
  readonly fence: number
  /** Server time. */
  readonly lockedAt: Date
  /** The server time at which the lock ends unless it is extended. */
  readonly lockUntil: Date
  /**
   * Frees the lock, or lets it end lockAtLeastFor after it was locked.
   * @returns false if it was no longer ours (expired, freed or taken); then nothing was touched
   * @throws LockProviderUnavailable; StaleLockHandle if it was extended: unlock the handle that `extend` returned
   */
  unlock(): Promise<boolean>
  /**
   * Holds it for `lockAtMostFor` from now on, and in any case until `lockAtLeastFor` is over. That counts from `lockedAt`, and by
   * default stays unchanged. As in Java's ShedLock this uses up the handle: continue with the returned one.
   * @returns the same acquisition with its new end; undefined if it was no longer ours, and then nothing was touched
   * @throws LockProviderUnavailable (this handle stays valid), InvalidLockConfig; StaleLockHandle if it was extended before
   */
  extend(lockAtMostFor: LockDuration, lockAtLeastFor?: LockDuration | undefined): Promise<SimpleLock | undefined>
}

/** The port that grants locks. It never waits for a lock to become free. */
export interface LockProvider {
  /** The store, for messages: `'mongodb'`, `'postgres'`, `'mysql'`, `'redis'`, `'redis-quorum'`, `'memory'`, or a name of your own. */
  readonly kind: string
  /**
   * @returns undefined if another caller holds the lock. Also undefined if it was granted by an answer that took as long as `lockAtMostFor`: the
   *   lock is then over, even if another caller has taken it since, and is freed in the background
   * @throws LockProviderUnavailable (the server is down: nothing is granted), InvalidLockConfig
   */
  lock(config: LockConfig): Promise<SimpleLock | undefined>
  /** Returns the record stored under a name; undefined if there is none. Optional: without it a refused caller doesn't learn the holder. */
  find?(name: string): Promise<LockRecord | undefined>
  /**
   * Returns the holder's token for each of these names that is held now. Called while tasks run, so that a task whose lock was freed by hand stops.
   * Optional: without it `find` is called for each name. Without `find` too, the task learns of it at its next extension.
   */
  holders?(names: readonly string[]): Promise<ReadonlyMap<string, string>>
}

/** A lock as it is stored, by us or by Java. Java's records have no fence of their own: they keep the one of our last acquisition. */
export interface LockRecord {
  /** The lock's name. */
  readonly name: string
  /** The token of the holder, or of the last one; for Java's locks, Java's own name for itself. Undefined if the record has no string there. */
  readonly lockedBy: string | undefined
  /** The time it was last locked: server time, or Java's own. Undefined if the record has no date there. */
  readonly lockedAt: Date | undefined
  /** The time it ends, or ended, in server time. Undefined if the record has no date there. */
  readonly lockUntil: Date | undefined
  /** The fence of our last acquisition. Undefined if only Java has ever held the lock, or if the store has forgotten it. */
  readonly fence: number | undefined
  /** True if it is held now, by the server's clock. A lock that was unlocked early counts as held until lockAtLeastFor is over. */
  readonly held: boolean
  /** True if its holder has unlocked it and it is kept for the rest of lockAtLeastFor. */
  readonly released: boolean
}

/** The operator's view of locks: lists and frees them. All built-in providers implement it. */
export interface LockRecords {
  /**
   * Lists all stored locks, sorted by name; with MongoDB, PostgreSQL and MySQL the first 10,000.
   * @param options.heldOnly leaves out free locks, whose records MongoDB, PostgreSQL and MySQL keep; default false
   */
  list(options?: { readonly heldOnly?: boolean }): Promise<readonly LockRecord[]>
  /** Returns the record stored under a name; undefined if there is none. @throws LockProviderUnavailable */
  find(name: string): Promise<LockRecord | undefined>
  /**
   * Frees a lock, whoever holds it: the holder's later unlock and extend touch nothing.
   * @param lockedBy frees it only if this is still its holder
   * @returns the freed record; undefined if no one held the lock, or if its holder isn't `lockedBy`
   */
  release(name: string, lockedBy?: string): Promise<LockRecord | undefined>
}

/** A built-in provider: grants, lists and frees. */
export interface OperableLockProvider extends LockProvider, LockRecords {
  find(name: string): Promise<LockRecord | undefined>
  holders(names: readonly string[]): Promise<ReadonlyMap<string, string>>
  /** Creates the table of PostgreSQL or MySQL, and its column `fence`, which Java's ShedLock doesn't have. A no-op for the other stores. */
  migrate(): Promise<void>
  /** Closes the connections that were opened here, never those that were passed in. */
  close(): Promise<void>
}
