import type { LockDuration } from './durations.js'
import type { LockConfig } from './lock-config.js'

/**
 * One acquisition of a lock. Invariant: whatever is called on it, however late, never changes another acquisition: every
 * write is conditional on `lockedBy` and on not having expired, by the server's clock.
 */
export interface SimpleLock {
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
}

/** A lock as it is stored, whoever wrote it. Java's records have no fence of their own: theirs is that of our last acquisition. */
export interface LockRecord {
  readonly name: string
  readonly lockedBy: string | undefined
  readonly lockedAt: Date | undefined
  readonly lockUntil: Date | undefined
  readonly fence: number | undefined
  /** Whether it is held now, by the server's clock; a lock that was unlocked early counts as held until lockAtLeastFor is over. */
  readonly held: boolean
  /** Unlocked by its holder, and kept for the rest of lockAtLeastFor. */
  readonly released: boolean
}

/** Locks as an operator sees and frees them; all four providers can. */
export interface LockRecords {
  /** All stored locks, by name. Free ones are included if the store keeps their records. */
  list(options?: { readonly heldOnly?: boolean }): Promise<readonly LockRecord[]>
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
  /** Creates what the store needs: PostgreSQL's table and its column `fence`, which Java's ShedLock doesn't have. Else nothing. */
  migrate(): Promise<void>
  /** Closes the connections that were opened here, never those that were passed in. */
  close(): Promise<void>
}
