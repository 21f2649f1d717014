import type { LockRecord, LockRecords } from '../../locks/index.js'
import { NotFound, Refused } from '../system/errors.js'

/** The store of named locks, as `openLockProvider` returns it. */
export type Locks = LockRecords & { readonly kind: string }

/** A named lock; null for values that aren't stored. */
export interface LockState {
  readonly name: string
  readonly lockedBy: string | null
  readonly lockedAt: Date | null
  readonly lockUntil: Date | null
  readonly fence: number | null
  readonly held: boolean
  /** Unlocked by its holder, and kept for the rest of lockAtLeastFor. */
  readonly released: boolean
}

/**
 * Named locks, by name.
 * @param all also those that are free, if their record is kept
 * @example await listLocks(locks) // [{ name: 'nightly', lockedBy: 'api-1~5f3a9c#d41d8cd98f00b204', held: true, ... }]
 * @throws LockProviderUnavailable
 */
export async function listLocks(locks: Locks, all = false): Promise<LockState[]> {
  return (await locks.list({ heldOnly: !all })).map(stateOf)
}

/**
 * A lock that is held.
 * @throws NotFound, LockProviderUnavailable
 */
export async function heldLock(locks: Locks, name: string): Promise<LockState> {
  const record = await locks.find(name)
  if (record?.held) return stateOf(record)
  throw new NotFound(
    `nobody holds the lock '${name}' in ${locks.kind}`,
    { reason: 'noLock', name },
    'see: phaselock locks --all',
  )
}

/**
 * Frees a lock if it is still held as it was seen. Within a second its holder's signal aborts. Code that ignores the signal, and Java's
 * holders, may overlap with the next one.
 * @param seen the lock that {@link heldLock} returned
 * @example await releaseLock(locks, await heldLock(locks, 'nightly'))
 * @throws Refused if the lock is free now or has another holder; LockProviderUnavailable
 */
export async function releaseLock(locks: Locks, seen: LockState): Promise<LockState> {
  const { name, lockedBy } = seen
  const freed = await locks.release(name, lockedBy ?? undefined)
  if (freed) return stateOf(freed)
  throw new Refused(
    `'${name}' was not freed: ${holderOf(seen)} no longer holds it`,
    { reason: 'lockChangedHands', name },
    'see: phaselock locks',
  )
}

/** The holder of a lock, for people: `api-1~5f3a9c#d41d8cd98f00b204 (released)`. */
export const holderOf = ({ lockedBy, released }: LockState): string =>
  `${lockedBy?.replace(/~(released|freed)$/, '') ?? '-'}${released ? ' (released)' : ''}`

const stateOf = ({ name, lockedBy, lockedAt, lockUntil, fence, held, released }: LockRecord): LockState => ({
  name,
  lockedBy: lockedBy ?? null,
  lockedAt: lockedAt ?? null,
  lockUntil: lockUntil ?? null,
  fence: fence ?? null,
  held,
  released,
})
