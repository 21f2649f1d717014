import { sleep } from '../time/index.js'
import type { LockProvider, SimpleLock } from './lock-provider.js'

/** The interval of the checks. A lock freed by hand stops its task within a second if the server answers immediately. */
const EVERY_MS = 750

/** A lock whose task is running. */
interface WatchedLock {
  readonly name: string
  readonly current: Pick<SimpleLock, 'lockedBy'>
  /** Called when this process no longer holds it. */
  lose(): void
}

const looks = new WeakMap<LockProvider, HeldLook>()

/**
 * Checks that running tasks still hold their locks: an operator may free a lock, or its record may be deleted, without the holder noticing.
 * Sends one command for all locks of a provider, and none unless a task has run for an interval. It only makes a task stop sooner: a failed
 * check is dropped, because a lease ends by its holder's own clock in any case.
 */
export class HeldLook {
  private readonly watched = new Set<WatchedLock>()
  private isLooking = false

  private constructor(private readonly provider: LockProvider) {}

  static of(provider: LockProvider): HeldLook {
    const known = looks.get(provider) ?? new HeldLook(provider)
    looks.set(provider, known)
    return known
  }

  /** Checks the lock until {@link remove}. */
  add(lock: WatchedLock): void {
    this.watched.add(lock)
    if (!this.isLooking) void this.look()
  }

  remove(lock: WatchedLock): void {
    this.watched.delete(lock)
  }

  private async look(): Promise<void> {
    this.isLooking = true
    while (this.watched.size > 0) {
      await sleep(EVERY_MS, { unref: true })
      // Locks added while the answer is on its way are not in it yet.
      const asked = [...this.watched]
      const found = await holdersOf(this.provider, [...new Set(asked.map(({ name }) => name))]).catch(() => undefined)
      if (!found) continue
      for (const lock of asked) if (found.get(lock.name) !== lock.current.lockedBy) lock.lose()
    }
    this.isLooking = false
  }
}

/** @returns undefined if this provider can't say */
async function holdersOf(
  provider: LockProvider,
  names: readonly string[],
): Promise<ReadonlyMap<string, string> | undefined> {
  if (names.length === 0) return undefined
  if (provider.holders) return await provider.holders(names)
  if (!provider.find) return undefined
  const found = await Promise.all(names.map((name) => provider.find?.(name)))
  return new Map(
    found.flatMap((record) => (record?.held && record.lockedBy !== undefined ? [[record.name, record.lockedBy]] : [])),
  )
}
