import type { LockDuration } from './durations.js'
import { StaleLockHandle } from './errors.js'
import type { SimpleLock } from './lock-provider.js'

/** One acquisition whose handle is replaced by each extension, for code that may free it just as an extension is answered. */
export class NewestHandle {
  private extending: Promise<unknown> = Promise.resolve()

  constructor(private lock: SimpleLock) {}

  get current(): SimpleLock {
    return this.lock
  }

  /** One at a time. @returns false if it was no longer ours */
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
