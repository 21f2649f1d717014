import type { LockDuration } from './durations.js'
import type { LockConfig } from './lock-config.js'

/**
 * One acquisition of a lock. Invariant: whatever is called on it, however late, never changes another acquisition: every
 * write is conditional on `lockedBy` and on not having expired, by the server's clock.
 */
export interface SimpleLock {
  /** The lock's name, as in its LockConfig. */
  readonly name: string
  /** Unique per acquisition: POD_NAME, made unique per start, and a nonce; after a `|` the reentry it was taken under. */
  readonly lockedBy: string
  /** Grows with each acquisition of the name, even across those of Java's ShedLock; outside systems refuse lower ones. */
  readonly fence: number
  /** Server time. */
  readonly lockedAt: Date
  /** Server time at which the lock ends unless it is extended. */
  readonly lockUntil: Date
  /**
   * Frees the lock, or lets it end lockAtLeastFor after it was locked.
   * @returns false if it was no longer ours (expired, freed or taken); then nothing was touched
   * @throws LockProviderUnavailable; StaleLockHandle if it was extended: unlock what `extend` returned
   */
  unlock(): Promise<boolean>
  /**
   * Holds it for `lockAtMostFor` from now on, and in any case until `lockAtLeastFor` is over, which counts from `lockedAt` and by
   * default stays as it was. As in Java's ShedLock this uses up the handle: go on with the one that is returned.
   * @returns the same acquisition with its new end; undefined if it was no longer ours, and then nothing was touched
   * @throws LockProviderUnavailable (this handle stays valid), InvalidLockConfig; StaleLockHandle if it was extended before
   */
  extend(lockAtMostFor: LockDuration, lockAtLeastFor?: LockDuration | undefined): Promise<SimpleLock | undefined>
}

/** The port that grants locks. It never waits for one to become free. */
export interface LockProvider {
  /** What is behind it, for messages: `'mongodb'`, `'postgres'`, `'redis'`, `'memory'`, or a name of your own. */
  readonly kind: string
  /**
   * @returns undefined if somebody else has it; also if it was granted, but its answer took as long as `lockAtMostFor`: then it is over already,
   * whoever has it by now, and is freed in the background
   * @throws LockProviderUnavailable (the server is down: nothing is granted), InvalidLockConfig
   */
  lock(config: LockConfig): Promise<SimpleLock | undefined>
  /** What is stored under a name; undefined: nothing. Optional: without it a refused caller doesn't learn who has the lock. */
  find?(name: string): Promise<LockRecord | undefined>
  /**
   * The token of the holder of each of these names that is held now: asked while tasks run, so that those whose lock was freed by hand stop.
   * Optional: without it `find` is asked for each; without that, too, such a task learns of it at its next extension.
   */
  holders?(names: readonly string[]): Promise<ReadonlyMap<string, string>>
}

/** A lock as it is stored, whoever wrote it. Java's records have no fence of their own: theirs is that of our last acquisition. */
export interface LockRecord {
  /** The lock's name. */
  readonly name: string
  /** The holder's token, or the last holder's; of Java's locks what Java calls itself. Undefined: the record has none that is a string. */
  readonly lockedBy: string | undefined
  /** When it was last locked: server time, or Java's own. Undefined: the record has no date there. */
  readonly lockedAt: Date | undefined
  /** When it ends, or ended, in the server's time. Undefined: the record has no date there. */
  readonly lockUntil: Date | undefined
  /** Of the last acquisition that was ours. Undefined: only Java has ever held it, or the store has forgotten. */
  readonly fence: number | undefined
  /** Whether it is held now, by the server's clock; a lock that was unlocked early counts as held until lockAtLeastFor is over. */
  readonly held: boolean
  /** Unlocked by its holder, and kept for the rest of lockAtLeastFor. */
  readonly released: boolean
}

/** Locks as an operator sees and frees them; all four providers can. */
export interface LockRecords {
  /**
   * All stored locks, sorted by name; of MongoDB's and PostgreSQL's the first 10,000.
   * @param options.heldOnly leaves out the free ones, whose records MongoDB and PostgreSQL keep; default false
   */
  list(options?: { readonly heldOnly?: boolean }): Promise<readonly LockRecord[]>
  /** What is stored under a name; undefined: nothing. @throws LockProviderUnavailable */
  find(name: string): Promise<LockRecord | undefined>
  /**
   * Frees a lock, whoever has it: its holder's later unlock and extend touch nothing.
   * @param lockedBy frees it only if this is still its holder
   * @returns what was freed; undefined if nobody held it, or somebody other than `lockedBy`
   */
  release(name: string, lockedBy?: string): Promise<LockRecord | undefined>
}

/** A provider of ours: grants, shows and frees. */
export interface OperableLockProvider extends LockProvider, LockRecords {
  find(name: string): Promise<LockRecord | undefined>
  holders(names: readonly string[]): Promise<ReadonlyMap<string, string>>
  /** Creates what the store needs: PostgreSQL's table and its column `fence`, which Java's ShedLock doesn't have. Else nothing. */
  migrate(): Promise<void>
  /** Closes the connections that were opened here, never those that were passed in. */
  close(): Promise<void>
}
