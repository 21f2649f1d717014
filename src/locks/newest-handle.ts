import type { LockDuration } from './durations.js'
import { StaleLockHandle } from './errors.js'
import type { SimpleLock } from './lock-provider.js'

/** One acquisition whose handle is replaced by each extension, for whoever may free it in the very moment in which that is answered. */
export class NewestHandle {
  private extending: Promise<unknown> = Promise.resolve()

  constructor(private lock: SimpleLock) {}

  get current(): SimpleLock {
    return this.lock
  }

  /** One at a time. @returns false when it was not ours any more */
  extend(lockAtMostFor: LockDuration, lockAtLeastFor?: LockDuration): Promise<boolean> {
    const extended = this.lock.extend(lockAtMostFor, lockAtLeastFor).then((longer) => {
      this.lock = longer ?? this.lock
      return longer !== undefined
    })
    this.extending = extended.catch(() => undefined)
    return extended
  }

  /** Never waits for an extension that has no answer yet. */
  async unlock(): Promise<boolean> {
    try {
      return await this.lock.unlock()
    } catch (error) {
      if (!(error instanceof StaleLockHandle)) throw error
      await this.extending
      return await this.lock.unlock()
    }
  }
}
