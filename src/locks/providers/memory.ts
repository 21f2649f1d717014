import { type Clock, systemClock } from '../../time/index.js'
import { freedToken, holderIdentity, isReleased, releasedToken } from '../acquisition.js'
import type { LockRecord, OperableLockProvider } from '../lock-provider.js'
import type { Granted, LockStore, Request } from '../lock-store.js'
import { NamedLocks } from '../named-locks.js'

interface Entry {
  readonly lockedBy: string
  readonly lockedAtMs: number
  readonly lockUntilMs: number
  readonly fence: number
}

const FORGET_FREE_ABOVE = 10_000

/** Locks within this process only: the single mode. Its "server's clock" never goes back, even if the wall clock does. */
export class MemoryLockStore implements LockStore {
  readonly kind = 'memory'
  private readonly entries = new Map<string, Entry>()
  private readonly startedMs: number

  constructor(private readonly clock: Clock = systemClock) {
    this.startedMs = clock.now().getTime() - clock.monotonicMs()
  }

  async take({ name, token, lockAtMostForMs, reentrySuffix }: Request): Promise<Granted | undefined> {
    const now = this.now()
    const old = this.entries.get(name)
    const reenters = reentrySuffix !== undefined && old !== undefined && reentryIn(old.lockedBy) === reentrySuffix
    if (old && old.lockUntilMs > now && !reenters) return undefined
    if (!old) this.forgetFree(now)
    const fence = Math.max(Math.floor(now) * 1_000, (old?.fence ?? 0) + 1)
    const entry = { lockedBy: token, lockedAtMs: now, lockUntilMs: now + lockAtMostForMs, fence }
    this.entries.set(name, entry)
    return { lockedAt: new Date(now), lockUntil: new Date(entry.lockUntilMs), fence }
  }

  async free(name: string, token: string, atLeastMs: number): Promise<boolean> {
    const entry = this.held(name, token)
    if (!entry) return false
    const lockUntilMs = Math.max(this.now(), entry.lockedAtMs + atLeastMs)
    this.entries.set(name, { ...entry, lockedBy: releasedToken(token), lockUntilMs })
    return true
  }

  async extend(name: string, token: string, atMostMs: number, atLeastMs: number): Promise<Date | undefined> {
    const entry = this.held(name, token)
    if (!entry) return undefined
    const lockUntilMs = Math.max(this.now() + atMostMs, entry.lockedAtMs + atLeastMs)
    this.entries.set(name, { ...entry, lockUntilMs })
    return new Date(lockUntilMs)
  }

  async find(name: string): Promise<LockRecord | undefined> {
    const entry = this.entries.get(name)
    return entry && this.recordOf(name, entry)
  }

  async holders(names: readonly string[]): Promise<Map<string, string>> {
    const now = this.now()
    return new Map(
      names.flatMap((name) => {
        const entry = this.entries.get(name)
        return entry && entry.lockUntilMs > now ? [[name, entry.lockedBy]] : []
      }),
    )
  }

  async list(heldOnly: boolean): Promise<LockRecord[]> {
    return [...this.entries]
      .map(([name, entry]) => this.recordOf(name, entry))
      .filter((record) => record.held || !heldOnly)
      .sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  async release({ name, lockedBy }: LockRecord): Promise<boolean> {
    const entry = this.held(name, lockedBy!)
    if (!entry) return false
    this.entries.set(name, { ...entry, lockedBy: freedToken(entry.lockedBy), lockUntilMs: this.now() })
    return true
  }

  async close(): Promise<void> {}

  private now(): number {
    return this.startedMs + this.clock.monotonicMs()
  }

  private held(name: string, token: string): Entry | undefined {
    const entry = this.entries.get(name)
    return entry?.lockedBy === token && entry.lockUntilMs > this.now() ? entry : undefined
  }

  /** Free entries are kept only for their fence, and the clock yields a higher one. */
  private forgetFree(now: number): void {
    if (this.entries.size < FORGET_FREE_ABOVE) return
    for (const [name, entry] of this.entries)
      if (entry.lockUntilMs <= now && entry.fence < Math.floor(now) * 1_000) this.entries.delete(name)
  }

  private recordOf(name: string, entry: Entry): LockRecord {
    return {
      name,
      lockedBy: entry.lockedBy,
      lockedAt: new Date(entry.lockedAtMs),
      lockUntil: new Date(entry.lockUntilMs),
      fence: entry.fence,
      held: entry.lockUntilMs > this.now(),
      released: isReleased(entry.lockedBy),
    }
  }
}

/** The store shared by all callers in this process that request locks in memory without naming a store. */
export const sharedMemory = new MemoryLockStore()

/** Locks in memory, shared only through this provider: for tests. */
export function memoryLocks(name?: string): OperableLockProvider {
  return new NamedLocks(new MemoryLockStore(), holderIdentity(name))
}

const reentryIn = (lockedBy: string): string | undefined =>
  lockedBy.includes('|') ? lockedBy.slice(lockedBy.indexOf('|')) : undefined
