import { type Clock, formatMs, systemClock } from '../time/index.js'
import { AbandonedAcquisitions } from './abandoned.js'
import { acquisitionToken, reentrySuffix } from './acquisition.js'
import type { LockDuration } from './durations.js'
import { InvalidLockConfig, InvalidLockProvider, LockProviderUnavailable, StaleLockHandle } from './errors.js'
import { checkedLockConfig, type LockConfig } from './lock-config.js'
import type { LockRecord, OperableLockProvider, SimpleLock } from './lock-provider.js'
import type { Granted, LockStore } from './lock-store.js'

/** The common part of all providers, on top of a store. */
export class NamedLocks implements OperableLockProvider {
  readonly kind: string
  private readonly abandoned: AbandonedAcquisitions

  constructor(
    private readonly store: LockStore,
    /** The identity of this process: `holderIdentity()`. */
    readonly identity: string,
    private readonly clock: Clock = systemClock,
  ) {
    this.kind = store.kind
    this.abandoned = new AbandonedAcquisitions((name, token) => store.free(name, token, 0))
  }

  async lock(config: LockConfig): Promise<SimpleLock | undefined> {
    const { name, lockAtMostForMs, lockAtLeastForMs, reentry } = checkedLockConfig(config)
    const token = acquisitionToken(this.identity, reentry)
    const suffix = reentry === undefined ? undefined : reentrySuffix(reentry)
    const locking = `lock '${name}'`
    await answered(this.kind, locking, () => this.abandoned.clear(name), NOTHING_ASKED)
    const sentAtMs = this.clock.monotonicMs()
    try {
      const granted = await this.store.take({ name, token, lockAtMostForMs, reentrySuffix: suffix })
      if (!granted) return undefined
      if (this.clock.monotonicMs() - sentAtMs >= lockAtMostForMs) {
        // The process was paused, or the answer took too long: another caller may have the lock already, or no one may have it for a while.
        this.abandoned.add(name, token)
        return undefined
      }
      return new HeldLock(this.store, name, token, granted, lockAtLeastForMs)
    } catch (error) {
      if (isOurs(error)) throw error
      this.abandoned.add(name, token)
      if (isMistake(error)) throw error
      throw new LockProviderUnavailable(this.kind, locking, error, notKnown(lockAtMostForMs))
    }
  }

  find(name: string): Promise<LockRecord | undefined> {
    return answered(this.kind, `find '${name}'`, () => this.store.find(name))
  }

  holders(names: readonly string[]): Promise<Map<string, string>> {
    return answered(this.kind, 'look who holds its locks', () => this.store.holders(names))
  }

  list({ heldOnly = false }: { readonly heldOnly?: boolean } = {}): Promise<LockRecord[]> {
    return answered(this.kind, 'list its locks', () => this.store.list(heldOnly))
  }

  release(name: string, lockedBy?: string): Promise<LockRecord | undefined> {
    return answered(this.kind, `release '${name}'`, async () => {
      const found = await this.store.find(name)
      if (!found?.held || (lockedBy !== undefined && found.lockedBy !== lockedBy)) return undefined
      return (await this.store.release(found)) ? found : undefined
    })
  }

  async migrate(): Promise<void> {
    await answered(this.kind, 'migrate', async () => await this.store.migrate?.())
  }

  async close(): Promise<void> {
    await this.abandoned.close()
    await this.store.close()
  }
}

class HeldLock implements SimpleLock {
  readonly fence: number
  readonly lockedAt: Date
  readonly lockUntil: Date
  private wasExtended = false

  constructor(
    private readonly store: LockStore,
    readonly name: string,
    readonly lockedBy: string,
    granted: Granted,
    private readonly lockAtLeastForMs: number,
  ) {
    this.fence = granted.fence
    this.lockedAt = granted.lockedAt
    this.lockUntil = granted.lockUntil
  }

  async unlock(): Promise<boolean> {
    this.assertValid()
    return await answered(this.store.kind, `unlock '${this.name}'`, () =>
      this.store.free(this.name, this.lockedBy, this.lockAtLeastForMs),
    )
  }

  async extend(lockAtMostFor: LockDuration, lockAtLeastFor?: LockDuration): Promise<SimpleLock | undefined> {
    this.assertValid()
    const checked = checkedLockConfig({ name: this.name, lockAtMostFor, lockAtLeastFor })
    const lockAtLeastForMs = lockAtLeastFor === undefined ? this.lockAtLeastForMs : checked.lockAtLeastForMs
    const lockUntil = await answered(this.store.kind, `extend '${this.name}'`, () =>
      this.store.extend(this.name, this.lockedBy, checked.lockAtMostForMs, lockAtLeastForMs),
    )
    if (!lockUntil) return undefined
    this.wasExtended = true
    const { name, lockedBy, lockedAt, fence } = this
    return new HeldLock(this.store, name, lockedBy, { lockedAt, lockUntil, fence }, lockAtLeastForMs)
  }

  /** Two handles of one acquisition would disagree on when it ends. */
  private assertValid(): void {
    if (this.wasExtended) throw new StaleLockHandle(this.name)
  }
}

const NOTHING_ASKED = 'no lock was requested and nothing is run; try again when the server is back'

const notKnown = (lockAtMostForMs: number) =>
  `nothing is run; it may have been granted all the same: if so, it is freed in the background, and expires after ${formatMs(lockAtMostForMs)}; try again when the server is back`

const isOurs = (error: unknown) => error instanceof InvalidLockConfig || error instanceof InvalidLockProvider

/** A mistake in the code, which says nothing about the server: trying again won't help. */
const isMistake = (error: unknown) =>
  [TypeError, RangeError, ReferenceError, SyntaxError].some((kind) => error instanceof kind)

async function answered<T>(kind: string, action: string, ask: () => Promise<T>, consequence?: string): Promise<T> {
  try {
    return await ask()
  } catch (error) {
    throw isOurs(error) || isMistake(error) ? error : new LockProviderUnavailable(kind, action, error, consequence)
  }
}
