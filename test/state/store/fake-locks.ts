import type { LockConfig, LockProvider, SimpleLock } from '../../../src/locks/index.js'

/** Grants each request with the fence that the test gives, whoever else has the lock: what happens when a holder is paused past its lease. */
export function grantingAll(fences: readonly number[]): LockProvider {
  const left = [...fences]
  return {
    kind: 'granting all',
    async lock({ name }: LockConfig): Promise<SimpleLock> {
      const lock: SimpleLock = {
        ...{ name, lockedBy: 'me', fence: left.shift()! },
        ...{ lockedAt: new Date(), lockUntil: new Date(Date.now() + 60_000) },
        unlock: async () => true,
        extend: async () => lock,
      }
      return lock
    },
  }
}
