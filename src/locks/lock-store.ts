import type { LockRecord } from './lock-provider.js'

/** A request for a lock: everything except the time, which comes from the server. */
export interface Request {
  readonly name: string
  /** The `lockedBy` of this acquisition. */
  readonly token: string
  readonly lockAtMostForMs: number
  /** The suffix of `lockedBy` in a lock that may be taken even though it is held. */
  readonly reentrySuffix: string | undefined
}

/** A granted lock, in server time. */
export interface Granted {
  readonly lockedAt: Date
  readonly lockUntil: Date
  readonly fence: number
}

/**
 * A store of locks. Each method is one atomic decision of the server, by its own clock, and ends within a bounded time:
 * - `take` writes only if the name is free (or its holder has the same reentry), and then `lockedBy = token`;
 * - `free` and `extend` write only if `lockedBy` is the token and the lock hasn't expired;
 * - a grant's fence is above that of every earlier one under the name, even if others held it in between.
 * Errors are the server's own; {@link NamedLocks} wraps them in ours.
 */
export interface LockStore {
  readonly kind: string
  take(request: Request): Promise<Granted | undefined>
  /**
   * Ends it at the later of now and lockedAt + `atLeastMs`, and removes the token. A lockedAt in the future, left by a clock that stepped
   * back, counts as now.
   */
  free(name: string, token: string, atLeastMs: number): Promise<boolean>
  /**
   * Ends it at the later of now + `atMostMs` and lockedAt + `atLeastMs`. A lockedAt in the future, left by a clock that stepped back,
   * counts as now.
   * @returns the new end
   */
  extend(name: string, token: string, atMostMs: number, atLeastMs: number): Promise<Date | undefined>
  find(name: string): Promise<LockRecord | undefined>
  /** Returns the `lockedBy` of each of these that is held now, in one command. */
  holders(names: readonly string[]): Promise<Map<string, string>>
  list(heldOnly: boolean): Promise<LockRecord[]>
  /** Frees a held lock for an operator, unless its holder has changed since `found` was read: the operator never frees a holder's lock unseen. */
  release(found: LockRecord): Promise<boolean>
  /** Creates the missing parts of a table. Stores without a table don't have this method. */
  migrate?(): Promise<void>
  close(): Promise<void>
}
