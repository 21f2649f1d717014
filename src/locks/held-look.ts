import { sleep } from '../time/index.js'
import type { LockProvider, SimpleLock } from './lock-provider.js'

/** How often it is looked: a lock that was freed by hand has stopped its task within a second, if its server answers at once. */
const EVERY_MS = 750

/** A lock whose task runs. */
interface WatchedLock {
  readonly name: string
  readonly current: Pick<SimpleLock, 'lockedBy'>
  /** It isn't ours any more. */
  lose(): void
}

const looks = new WeakMap<LockProvider, HeldLook>()

/**
 * Looks whether the locks of running tasks are still theirs: an operator frees one, somebody deletes its record, and nothing of that reaches
 * their holder. One command for all locks of a provider, and none while no task has run for that long. It only makes a task stop sooner: a look
 * that fails is dropped, as a lease ends by its holder's own clock whatever is found.
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

  /** Until {@link remove}. */
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
      // Those that are added while the answer is on its way are in no answer yet.
      const asked = [...this.watched]
      const found = await holdersOf(this.provider, [...new Set(asked.map(({ name }) => name))]).catch(() => undefined)
      if (!found) continue
      for (const lock of asked) if (found.get(lock.name) !== lock.current.lockedBy) lock.lose()
    }
    this.isLooking = false
  }
}

/** @returns undefined: this provider doesn't say */
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
